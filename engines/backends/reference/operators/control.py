"""Loop: the evaluator takes a condition that is left out for false and runs no iteration, and joins
what each iteration gives along its first dimension instead of a new one."""

from typing import Any

import numpy as np

from narrowdown.engines.backends.reference.operators.base import Array, Operator


class Loop(Operator):
    def need_context(self) -> bool:
        """The body reads values of the graph around it."""
        return True

    def _run(
        self,
        trips: Array | None,
        go: Array | None = None,
        *carried: Any,
        context: dict[str, Any] | None = None,
        **more: Any,
    ) -> tuple[Any, ...]:
        body = more["body"]
        states = list(carried)
        gathered: list[list[Any]] = [[] for _ in range(len(body.output_names) - 1 - len(states))]
        most = np.inf if trips is None else int(np.asarray(trips).reshape(-1)[0])
        goes_on = True if go is None else bool(np.asarray(go).reshape(-1)[0])
        iteration = 0
        while goes_on and iteration < most:
            fed = (np.array(iteration, np.int64), np.array(goes_on), *states)
            inputs = {**(context or {}), **dict(zip(body.input_names, fed, strict=True))}
            given = self._run_body(
                inputs, attributes=more.get("attributes"), bindings=more.get("bindings")
            )
            goes_on = bool(np.asarray(given[0]).reshape(-1)[0])
            states = list(given[1 : 1 + len(states)])
            for values, value in zip(gathered, given[1 + len(states) :], strict=True):
                values.append(value)
            iteration += 1
        return (
            *states,
            *(np.stack(values) if values else np.zeros((0,), np.float32) for values in gathered),
        )
