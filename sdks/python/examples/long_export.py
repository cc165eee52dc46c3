"""Long work: the lease is renewed in the background, and progress survives the process."""

import os
from collections.abc import Callable

from semel import Semel, Terms

once = Semel(os.environ["SIDECAR_URL"], terms=Terms(lease=30))


def export(report: str, pages: int, write: Callable[[int], None]) -> int:
    with once.operation("export", key=report, payload={"pages": pages}) as operation:
        if operation.replayed:
            return int(operation.value)
        lease = operation.lease  # None where the server only observes the scope
        done: int = (lease and lease.last_checkpoint) or 0
        for page in range(done, pages):
            if lease:
                lease.check()  # LeaseLost where another has taken over
            write(page)
            if lease:
                lease.save_checkpoint(page + 1)
        operation.complete(pages)
        return pages


if __name__ == "__main__":
    print(export("r-1", 3, print), "pages")
