"""Settings of ONNX Runtime and its providers that can do no more than change what is computed and
how fast: switches, numbers, names of kinds. Keys of ONNX Runtime's public headers and pages; any
other one is asked about, as some name files that are written over, read or loaded, and some are
addresses in memory."""

_SESSION = (
    "ep.cuda.fpa_intb_gemm", "mlas.disable_kleidiai", "mlas.enable_gemm_fastmath_arm64_bfloat16", "mlas.qnbit.force_fp32",
    "mlas.use_lut_gemm", "optimization.constant_folding_max_output_size_in_bytes", "optimization.disable_specified_optimizers",
    "optimization.enable_cast_chain_elimination", "optimization.enable_gelu_approximation", "session.allow_released_opsets_only",
    "session.disable_aot_function_inlining", "session.disable_cpu_ep_fallback", "session.disable_double_qdq_remover",
    "session.disable_prepacking", "session.disable_qdq_constant_folding", "session.disable_quant_qdq",
    "session.dynamic_block_base", "session.enable_dq_matmulnbits_fusion", "session.enable_quant_qdq_cleanup",
    "session.force_spinning_stop", "session.graph_optimizations_loop_level", "session.inter_op.allow_spinning",
    "session.intra_op.allow_spinning", "session.intra_op_thread_affinities", "session.prepack.enable_parallel",
    "session.qdq_matmulnbits_accuracy_level", "session.qdq_matmulnbits_block_size", "session.qdqisint8allowed",
    "session.set_denormal_as_zero", "session.strict_shape_type_inference", "session.use_device_allocator_for_initializers",
    "session.x64quantprecision",
)  # fmt: skip
_PROVIDERS = (
    # CUDA, ROCm, DirectML
    "arena_extend_strategy", "cudnn_conv1d_pad_to_nc1d", "cudnn_conv_algo_search", "cudnn_conv_use_max_workspace", "device_id",
    "do_copy_in_default_stream", "enable_cuda_graph", "enable_skip_layer_norm_strict_mode", "fuse_conv_bias", "gpu_mem_limit",
    "performance_preference", "prefer_nhwc", "sdpa_kernel", "tunable_op_enable", "tunable_op_tuning_enable",
    "use_ep_level_unified_stream", "use_tf32",
    # TensorRT, but for its caches, which are files, and what it dumps
    "trt_auxiliary_streams", "trt_bf16_enable", "trt_build_heuristics_enable", "trt_builder_optimization_level",
    "trt_context_memory_sharing_enable", "trt_cuda_graph_enable", "trt_dla_core", "trt_dla_enable", "trt_fp16_enable",
    "trt_int8_enable", "trt_layer_norm_fp32_fallback", "trt_max_partition_iterations", "trt_max_workspace_size",
    "trt_min_subgraph_size", "trt_sparsity_enable",
    # MIGraphX, OpenVINO, Core ML, QNN, XNNPACK, oneDNN
    "migraphx_fp16_enable", "migraphx_int8_enable", "num_of_threads", "num_streams", "disable_dynamic_shapes", "precision",
    "EnableOnSubgraphs", "MLComputeUnits", "ModelFormat", "RequireStaticInputShapes", "enable_htp_fp16_precision", "htp_arch",
    "htp_graph_finalization_optimization_mode", "htp_performance_mode", "soc_model", "vtcm_mb", "intra_op_num_threads",
    "use_arena",
)  # fmt: skip


def _one_of(keys: tuple[str, ...]) -> str:
    """What matches ``KEY=VALUE`` of these keys, where the value has no path in it."""
    return rf"(?:{'|'.join(key.replace('.', '[.]') for key in keys)})=[-\w.,:;]*"


SESSION, PROVIDER = _one_of(_SESSION), _one_of(_PROVIDERS)
