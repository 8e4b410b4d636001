"""Who may start beside whom."""

import asyncio
import random

from engines.cluster.turns import Turns


def test_one_that_wants_to_be_alone_is_alone_and_nobody_is_forgotten() -> None:
    async def body() -> None:
        draw = random.Random(1)
        turns: Turns[int] = Turns()
        order: list[int] = []

        async def one(n: int) -> None:
            alone = n % 4 == 0
            async with turns.turn(n, alone=alone):
                order.append(n)
                for _ in range(draw.randrange(5)):
                    assert n in turns.at_work
                    assert not alone or turns.at_work == [n]
                    await asyncio.sleep(0)

        tasks = [asyncio.create_task(one(n)) for n in range(60)]
        await asyncio.sleep(0)
        for task in tasks[5::7]:  # some are withdrawn, waiting or at work
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert turns.at_work == []
        assert order == sorted(order), "first come, first served"
        assert set(range(60)) - set(order) <= set(range(5, 60, 7))

    asyncio.run(body())
