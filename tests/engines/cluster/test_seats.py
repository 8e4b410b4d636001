"""Who may start beside whom."""

import asyncio
import random

from narrowdown.engines.cluster.seats import Turns


def test_one_that_wants_to_be_alone_is_alone_and_nobody_is_forgotten() -> None:
    async def body() -> None:
        draw = random.Random(1)
        turns: Turns[int] = Turns()
        order: list[int] = []

        async def one(n: int) -> None:
            alone = n % 4 == 0
            async with turns.turn(n, "alone" if alone else "shared"):
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


def test_those_with_a_seat_of_their_own_work_beside_each_other_and_nobody_else() -> None:
    async def body() -> int:
        draw = random.Random(2)
        turns: Turns[tuple[int, str]] = Turns()
        most = 0

        async def one(n: int) -> None:
            nonlocal most
            me = (n, draw.choice(("shared", "seated", "seated", "alone")))
            async with turns.turn(me, me[1], lambda: 3):  # type: ignore[arg-type]
                for _ in range(draw.randrange(5)):
                    assert {kind for _, kind in turns.at_work} == {me[1]}
                    most = max(most, len(turns.at_work)) if me[1] == "seated" else most
                    assert len(turns.at_work) <= {"shared": 99, "seated": 3, "alone": 1}[me[1]]
                    await asyncio.sleep(0)

        await asyncio.gather(*(one(n) for n in range(200)))
        return most

    assert asyncio.run(body()) == 3
