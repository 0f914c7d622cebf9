"""How the servers of this folder end with whoever started them, however that ends."""

from __future__ import annotations

from pathlib import Path

__all__ = ["supervised"]

# Runs the server and ends it when standard input closes, which it does even if the parent is killed by SIGKILL.
# The data go only when the parent is done with them: after a crash it still wants to read the log.
_SCRIPT = """
directory=$1; shift
exec 3<&0
"$@" </dev/null 3<&- & server=$!
{ while read -r _ <&3; do :; done; : >"$directory/over"; kill -TERM $server; } 2>/dev/null & watcher=$!
wait $server; status=$?
kill $watcher 2>/dev/null
[ ! -e "$directory/over" ] || rm -rf "$directory"
exit $status
"""


def supervised(name: str, directory: Path, command: list[str]) -> list[str]:
    """The command line of a server that ends when its standard input is closed.

    Args:
        name: for the list of processes.
        directory: of the server; removed when it was ended so.
        command: of the server itself. It becomes a child of the process that is started, and has no standard input.
    """
    return ["/bin/sh", "-c", _SCRIPT, name, str(directory), *command]
