"""Structs are read in several threads, in a process that has not read one before."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import airflow_provider_kafka_s3

PACKAGE = Path(airflow_provider_kafka_s3.__file__).parent
FIRST_USES = """
import sys, threading
import msgspec
from airflow_provider_kafka_s3.structs import convert_to_struct, decode_struct

sys.setswitchinterval(1e-6)

def pair(number):
    fields = [("text", str), ("number", int | None, None), ("names", tuple[str, ...], ())]
    inner = msgspec.defstruct(f"Inner{number}", fields)
    return msgspec.defstruct(f"Outer{number}", [("one", inner), ("all", dict[str, inner], {})])

def read(barrier, kind, function, given, found):
    barrier.wait()
    found.append(function(given, kind).one.text)

INNER = {"text": "a", "number": 1, "names": ["b"]}
FORMS = ((convert_to_struct, {"one": INNER, "all": {"k": INNER}}), (decode_struct, msgspec.json.encode({"one": INNER})))
for number in range(300):
    kind, found, barrier = pair(number), [], threading.Barrier(4)
    threads = [threading.Thread(target=read, args=(barrier, kind, *FORMS[i % 2], found)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == ["a"] * 4, found
"""


def test_several_threads_may_use_a_type_for_the_first_time() -> None:
    """As the threads of a job do, which read the plans of many topics; without the lock the process ends by SIGSEGV."""
    command = [sys.executable, "-X", "faulthandler", "-c", FIRST_USES]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_no_other_module_reads_structs_by_itself() -> None:
    """Decoders that a module makes when it is imported are safe: one thread imports it. So are types without fields."""
    plain = {"int", "str", "dict[str, msgspec.Raw]"}
    found = set()
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Call) or ast.unparse(node.func) not in (
                "msgspec.json.decode",
                "msgspec.convert",
            ):
                continue
            types = {ast.unparse(keyword.value) for keyword in node.keywords if keyword.arg == "type"}
            if ast.unparse(node.func) == "msgspec.convert" or not types <= plain:
                found.add(str(path.relative_to(PACKAGE)))
    assert found == {"structs.py", "config/values.py"}
