"""RoiAlign: opset 10 has no ``coordinate_transformation_mode`` and shifts nothing; the evaluator
shifts by half a pixel in every version, and takes the maximum of something else."""

from typing import Any

import numpy as np

from narrowdown.engines.backends.reference.operators.base import Array, Operator


class RoiAlign(Operator):
    def _run(self, x: Array, rois: Array, batch: Array, **given: Any) -> tuple[Array]:
        out_h, out_w = int(given.get("output_height") or 1), int(given.get("output_width") or 1)
        ratio, scale = (
            int(given.get("sampling_ratio") or 0),
            float(given.get("spatial_scale") or 1.0),
        )
        half = (
            self.since >= 16  # which brought the attribute
            and given.get("coordinate_transformation_mode") != "output_half_pixel"
        )
        height, width = x.shape[2:]
        made = np.zeros((len(rois), x.shape[1], out_h, out_w), x.dtype)
        for r, (roi, sample) in enumerate(zip(rois.astype(x.dtype), batch, strict=True)):
            left, top, right, bottom = roi * scale - (0.5 if half else 0.0)
            wide, high = right - left, bottom - top
            if not half:
                wide, high = max(wide, 1.0), max(high, 1.0)
            bin_h, bin_w = high / out_h, wide / out_w
            many_h = ratio if ratio > 0 else int(np.ceil(high / out_h))
            many_w = ratio if ratio > 0 else int(np.ceil(wide / out_w))
            if many_h < 1 or many_w < 1:
                continue
            ys = top + (np.arange(out_h * many_h) + 0.5) * bin_h / many_h
            xs = left + (np.arange(out_w * many_w) + 0.5) * bin_w / many_w
            (low_y, high_y, fy, in_y), (low_x, high_x, fx, in_x) = (
                _neighbours(ys, height),
                _neighbours(xs, width),
            )
            plane = x[int(sample)]
            corners = [
                plane[:, a[:, None], b] * (wa[:, None] * wb)
                for a, wa in ((low_y, 1 - fy), (high_y, fy))
                for b, wb in ((low_x, 1 - fx), (high_x, fx))
            ]
            inside = in_y[:, None] & in_x
            grouped = (x.shape[1], out_h, many_h, out_w, many_w)
            if given.get("mode") == "max":
                best = np.where(inside, np.max(corners, axis=0), 0)
                made[r] = best.reshape(grouped).max(axis=(2, 4))
            else:
                made[r] = np.where(inside, sum(corners), 0).reshape(grouped).mean(axis=(2, 4))
        return (made,)


def _neighbours(at: Array, size: int) -> tuple[Array, Array, Array, Array]:
    """(lower neighbour, upper one, how far towards it, whether the place counts) of each
    position."""
    counts = (at >= -1.0) & (at <= size)
    place = np.maximum(at, 0)
    low = np.minimum(place.astype(np.int64), size - 1)
    high = np.minimum(low + 1, size - 1)
    return low, high, np.where(low >= size - 1, 0.0, place - low), counts
