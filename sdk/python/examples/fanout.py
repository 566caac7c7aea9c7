"""Many commands at once with asyncio: each in a sandbox of its own, with live output.

    python3 fanout.py [COUNT]
"""

import asyncio
import sys

from caisson import AsyncClient


async def main(count: int) -> None:
    async with AsyncClient() as client:
        limit = asyncio.Semaphore(4)

        async def one(n: int) -> str:
            async with limit:
                result = await client.run(
                    f"echo start {n}; sleep 0.1; echo $(({n} * {n}))",
                    memory="64M",
                    pids=32,
                    on_stdout=lambda text: print(f"[{n}] {text}", end=""),
                )
                return result.stdout.split()[-1]

        print(await asyncio.gather(*(one(n) for n in range(count))))


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else 6))
