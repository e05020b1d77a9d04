"""Batches of fixed sizes, and the queue of waiting chips."""

import asyncio
import contextlib
import threading

import numpy as np
import pytest

from jaxatr.recognition.drift import Reference
from jaxatr.serving.batcher import Batcher, Busy, _fitting
from jaxatr.serving.engine import Answer

SIZES = (1, 4, 16)


class Echo:
    """An engine that answers a chip with its number, once the test permits it."""

    def __init__(self):
        self.sizes, self.free = [], threading.Event()
        self.started = threading.Event()
        self.free.set()
        self.fails = False

    def answer(self, chips, *, neighbours=False, scores=()):
        self.started.set()
        assert self.free.wait(20)
        self.sizes.append(len(chips))
        if self.fails:
            raise FloatingPointError("no number")
        more = (neighbours, *sorted(scores))
        return [
            Answer({"n": int(chip[0, 0, 0])}, more, np.zeros(0), Reference({})) for chip in chips
        ]

    def saliency(self, chip):
        return "class", np.full((1, 1), float(chip[0, 0, 0]))


def chips(*numbers):
    return [np.full((1, 1, 1), n, np.int32) for n in numbers]


@contextlib.asynccontextmanager
async def running(engine, **options):
    batcher = Batcher(engine, SIZES, **{"most": 64, "seconds": 20.0, **options})
    batcher.start()
    try:
        yield batcher
    finally:
        engine.free.set()
        await asyncio.to_thread(batcher.stop)
        assert not batcher.alive and not batcher.waiting


def numbers(answers):
    return [answer.verdicts["n"] for answer in answers]


def test_every_request_gets_its_own_answers():
    async def main():
        engine = Echo()
        async with running(engine, most=1000) as batcher:
            wanted = [list(range(start, start + 1 + start % 7)) for start in range(0, 200, 5)]
            found = await asyncio.gather(*(batcher.answer(chips(*some)) for some in wanted))
        assert [numbers(answers) for answers in found] == wanted
        assert set(engine.sizes) <= set(SIZES)
        assert len(engine.sizes) < len(wanted)  # they were gathered

    asyncio.run(main())


@pytest.mark.parametrize("count", range(1, 60))
def test_waiting_images_are_taken_without_much_waste(count):
    left, computed = count, 0
    while left:
        taken = _fitting(left, SIZES)
        assert 0 < taken <= left
        computed += next(size for size in SIZES if size >= taken)
        left -= taken
    assert computed <= count * 4 / 3


def test_a_request_that_has_gone_is_not_computed():
    async def main():
        engine = Echo()
        engine.free.clear()
        async with running(engine) as batcher:
            first = asyncio.ensure_future(batcher.answer(chips(1)))
            await asyncio.to_thread(engine.started.wait)
            gone = asyncio.ensure_future(batcher.answer(chips(*range(16))))
            last = asyncio.ensure_future(batcher.answer(chips(2)))
            await asyncio.sleep(0)
            gone.cancel()
            await asyncio.sleep(0)
            engine.free.set()
            assert numbers(await first) == [1] and numbers(await last) == [2]
        assert engine.sizes == [1, 1]

    asyncio.run(main())


def test_too_much_is_refused_and_then_taken_again():
    async def main():
        engine = Echo()
        engine.free.clear()
        async with running(engine, most=8) as batcher:
            first = asyncio.ensure_future(batcher.answer(chips(1)))
            await asyncio.to_thread(engine.started.wait)
            waiting = [asyncio.ensure_future(batcher.answer(chips(n, n))) for n in range(4)]
            await asyncio.sleep(0)
            with pytest.raises(Busy, match="8 chips are waiting") as busy:
                await batcher.answer(chips(9))
            assert busy.value.seconds >= 1
            with pytest.raises(Busy):
                await batcher.explain(chips(1)[0])
            engine.free.set()
            assert numbers(await first) == [1]
            assert [numbers(found) for found in await asyncio.gather(*waiting)] == [
                [n, n] for n in range(4)
            ]
            assert numbers(await batcher.answer(chips(9))) == [9]

    asyncio.run(main())


def test_images_that_wait_too_long_are_given_up():
    async def main():
        engine = Echo()
        engine.free.clear()
        async with running(engine, seconds=0.05) as batcher:
            with pytest.raises(Busy, match="no answer within"):
                await batcher.answer(chips(1))
            with pytest.raises(Busy, match="no answer within"):
                await batcher.answer(chips(2))
            engine.free.set()
        assert engine.sizes == [1]  # the second had been given up

    asyncio.run(main())


def test_a_batch_that_fails_ends_nothing_else():
    async def main():
        engine = Echo()
        async with running(engine) as batcher:
            engine.fails = True
            with pytest.raises(FloatingPointError):
                await batcher.answer(chips(1, 2))
            engine.fails = False
            assert numbers(await batcher.answer(chips(3))) == [3]

    asyncio.run(main())


def test_a_chip_that_fails_fails_alone():
    class Picky(Echo):
        def answer(self, chips, **options):
            if (chips == 2).any():
                raise FloatingPointError("it is 2")
            return super().answer(chips, **options)

    async def main():
        async with running(Picky()) as batcher:
            first, second, third = await batcher.answer(chips(1, 2, 3))
            assert numbers([first, third]) == [1, 3]
            assert isinstance(second, FloatingPointError) and str(second) == "it is 2"

    asyncio.run(main())


def test_a_batch_without_memory_ends_nothing_else(monkeypatch):
    async def main():
        async with running(Echo()) as batcher:
            with monkeypatch.context() as patched:

                def stack(arrays):
                    raise MemoryError("no memory for the batch")

                patched.setattr(np, "stack", stack)
                with pytest.raises(MemoryError, match="no memory for the batch"):
                    await batcher.answer(chips(1, 2))
            assert batcher.alive
            assert numbers(await batcher.answer(chips(3))) == [3]

    asyncio.run(main())


def test_maps_and_batches_take_turns():
    async def main():
        engine = Echo()
        engine.free.clear()
        order = []
        async with running(engine) as batcher:

            async def note(name, work):
                await work
                order.append(name)

            first = note("first", batcher.answer(chips(0)))
            tasks = [asyncio.ensure_future(first)]
            await asyncio.sleep(0)
            await asyncio.to_thread(engine.started.wait)
            tasks += [
                asyncio.ensure_future(note("batch", batcher.answer(chips(*range(16)))))
                for _ in range(3)
            ]
            tasks += [
                asyncio.ensure_future(note("map", batcher.explain(chips(7)[0]))) for _ in "ab"
            ]
            await asyncio.sleep(0)
            engine.free.set()
            await asyncio.gather(*tasks)
        assert order == ["first", "map", "batch", "map", "batch", "batch"]

    asyncio.run(main())


def test_neighbours_and_scores_are_computed_for_a_batch_that_needs_them():
    async def main():
        async with running(Echo()) as batcher:
            (found,) = await batcher.answer(chips(1), neighbours=True)
            (scored,) = await batcher.answer(chips(1), scores=["a", "b"])
            (other,) = await batcher.answer(chips(1))
        assert found.neighbours == (True,) and other.neighbours == (False,)
        assert scored.neighbours == (False, "a", "b")

    asyncio.run(main())


def test_an_engine_can_be_exchanged():
    async def main():
        first, second = Echo(), Echo()
        async with running(first) as batcher:
            await batcher.answer(chips(1))
            batcher.engine = second
            await batcher.answer(chips(1, 2, 3, 4))
        assert (first.sizes, second.sizes) == ([1], [4])

    asyncio.run(main())
