"""The mutations of the protocol: for every safety step, its code and the replacement without it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

__all__ = ["MUTATIONS", "PACKAGE", "Edit", "Mutation"]

PACKAGE: Final = "airflow_provider_kafka_s3"
BATCH: Final = f"{PACKAGE}/batch"


@dataclass(frozen=True)
class Edit:
    """An exact snippet of a file, which must occur once, and its replacement."""

    file: str
    snippet: str
    replacement: str


@dataclass(frozen=True)
class Mutation:
    """A change that removes a safety step.

    Attributes:
        name: identifies it.
        description: behaviour of the mutant.
        edits: changes of the source.
        first: first seed to try, close to one that catches it.
        trim: whether old control documents are deleted meanwhile.
        test: the unit test that catches it; empty: the simulation does.
    """

    name: str
    description: str
    edits: tuple[Edit, ...]
    first: int = 0
    trim: bool = False
    test: str = ""


_OVERWRITE: Final = Edit(
    f"{PACKAGE}/storage/durable.py",
    "    def replace(self, key: str, body: bytes, etag: str) -> bool:\n",
    """    def overwrite(self, key: str, body: bytes) -> bytes:
        stored = self.get(key)
        if stored is None:
            self.create(key, body)
        else:
            self.replace(key, body, stored.etag)
        return body

    def replace(self, key: str, body: bytes, etag: str) -> bool:
""",
)
"""A plain PUT, which the product does not have."""

MUTATIONS: Final = (
    Mutation(
        "plan-put",
        "a plan is written by a plain PUT",
        (
            _OVERWRITE,
            Edit(
                f"{BATCH}/log.py",
                "        return self.store.create(key, body) == body\n",
                "        return self.store.overwrite(key, body) == body\n",
            ),
        ),
    ),
    Mutation(
        "plan-blind",
        "the planner ignores open plans",
        (
            Edit(
                f"{BATCH}/run.py",
                "        free = record.target - covered - view.claims\n",
                "        free = record.target - covered\n",
            ),
        ),
    ),
    Mutation(
        "plan-renumbered",
        "a plan that lost its number takes the next one with the same body",
        (
            Edit(
                f"{BATCH}/run.py",
                "        if not self.log.create_plan(plan, attempt=self.request.attempt, task=self.request.task):\n"
                "            return None\n",
                "        import msgspec\n\n        while not self.log.create_plan(plan):\n"
                "            plan = msgspec.structs.replace(plan, batch=plan.batch + 1, start=None)\n",
            ),
        ),
    ),
    Mutation(
        "task-completes",
        "tasks complete their uploads",
        (
            # The task of the simulation; that of the product is tested with Spark.
            Edit(
                "tests/protocol/engine.py",
                "        parts = [store.upload_part(lines.key, upload_id, 1, lines.body)]\n",
                "        parts = [store.upload_part(lines.key, upload_id, 1, lines.body)]\n"
                "        store.complete(lines.key, upload_id, parts)\n",
            ),
        ),
    ),
    Mutation(
        "no-adoption",
        "no run executes another run's open plan",
        (
            Edit(
                f"{BATCH}/run.py",
                "            decision = self._adoption.decision_of(plan)\n",
                "            decision = self._adoption.decision_of(plan)\n"
                "            if decision is None:\n"
                "                from airflow_provider_kafka_s3.exceptions import UnknownOutcomeError\n\n"
                '                raise UnknownOutcomeError("blocked by another run")\n',
            ),
        ),
        first=5,
    ),
    Mutation(
        "marker-first",
        "the marker is written before the objects are completed",
        (
            Edit(
                f"{BATCH}/commit.py",
                '        if decision.status == "commit" and not self.roll_forward(plan, decision):\n'
                "            return\n"
                "        self.resolve(plan, decision)\n",
                "        self.resolve(plan, decision)\n        self.roll_forward(plan, decision)\n",
            ),
        ),
    ),
    Mutation(
        "marker-blind",
        "the marker is replaced without If-Match",
        (
            _OVERWRITE,
            Edit(
                f"{BATCH}/log.py",
                "        return self.store.replace(addresses.marker_key(self.prefix), body, etag)\n",
                "        self.store.overwrite(addresses.marker_key(self.prefix), body)\n        return True\n",
            ),
        ),
        first=11,
    ),
    Mutation(
        "manifest-put",
        "a manifest is written by a plain PUT",
        (
            _OVERWRITE,
            Edit(
                f"{BATCH}/log.py",
                "        stored = self.store.create(key, encode(manifest, write_stamp(), self.store.url(key)))\n",
                "        stored = self.store.overwrite(key, encode(manifest, write_stamp()))\n",
            ),
        ),
    ),
    Mutation(
        "manifest-unread",
        "the loser of a decision continues with its own manifest",
        (
            Edit(
                f"{BATCH}/commit.py",
                "        decision = self.log.create_manifest(manifest)\n",
                "        self.log.create_manifest(manifest)\n        decision = manifest\n",
            ),
        ),
        first=5,
    ),
    Mutation(
        "loser-completes",
        "the loser of a decision completes its uploads",
        (
            Edit(
                f"{BATCH}/commit.py",
                "        self.objects.abort([o for o in manifest.objects if o.upload_id not in listed])\n",
                "        for entry in manifest.objects:\n"
                "            if entry.upload_id not in listed:\n"
                "                self.store.complete(entry.key, entry.upload_id, entry.upload_parts())\n",
            ),
        ),
    ),
    Mutation(
        "abandon-put",
        "abandon overwrites the decision",
        (
            _OVERWRITE,
            Edit(
                f"{BATCH}/commit.py",
                """        return self.log.create_manifest(
            Manifest(
                batch=plan.batch,
                plan_sha256=self.log.require_plan(plan.batch)[1],
                status="abandoned",
                run=run,
                release=release,
                reason=reason,
                operator=operator,
            )
        )
""",
                """        manifest = Manifest(
            batch=plan.batch,
            plan_sha256=self.log.require_plan(plan.batch)[1],
            status="abandoned",
            run=run,
            release=release,
            reason=reason,
            operator=operator,
        )
        from airflow_provider_kafka_s3.documents.codec import encode, write_stamp
        from airflow_provider_kafka_s3.documents import addresses

        self.store.overwrite(addresses.manifest_key(self.log.prefix, plan.batch), encode(manifest, write_stamp()))
        return manifest
""",
            ),
        ),
    ),
    Mutation(
        "abandon-marker-only",
        "abandon is recorded in the marker only, without a decision",
        (
            Edit(
                f"{PACKAGE}/maintenance/abandon.py",
                "    decision = committer.abandon(plan, release=release, reason=reason, operator=operator, "
                'run=f"operator:{operator}")\n',
                '    decision = Manifest(batch=batch, plan_sha256="", status="abandoned", run="", release=release)\n',
            ),
        ),
    ),
    Mutation(
        "no-debt",
        "incremental starts at the end of the coverage",
        (
            Edit(
                f"{BATCH}/planning.py",
                "    return (new | promised) - view.marker.covered\n",
                "    new = Offsets({p: [(view.marker.covered.end(p) or view.marker.start.get(p, 0), end)]"
                " for p, end in ends.items()})\n    return new - view.marker.covered\n",
            ),
        ),
    ),
    Mutation(
        "window-alone",
        "a run over a window begins at the window in a partition that no run has claimed",
        (
            Edit(
                f"{BATCH}/planning.py",
                "    begin = untouched(view, window.ends)\n",
                "    known = view.marker.covered | view.marker.debt | view.claims\n"
                "    begin = {p: known.end(p) or window.starts[p] for p in window.ends}\n",
            ),
        ),
    ),
    Mutation(
        "gap-below-window",
        "offsets between the coverage and a window are not landed with it",
        (
            Edit(
                f"{BATCH}/planning.py",
                "    begin = untouched(view, window.ends)\n",
                "    begin = window.starts\n",
            ),
        ),
    ),
    Mutation(
        "future-ends-window",
        "a record from the future ends a window",
        (
            Edit(
                f"{BATCH}/window_offsets.py",
                "if found is not None and is_future(found, now_ms)}\n",
                "if False}\n",
            ),
        ),
        first=21,
    ),
    Mutation(
        "added-from-window",
        "a partition that was added begins at its current end",
        (
            Edit(
                f"{BATCH}/planning.py",
                "    return {p: max(known.end(p) or 0, view.marker.start.get(p, 0)) for p in partitions}\n",
                "    return {p: max(known.end(p) or 0, view.marker.start.get(p, 1)) for p in partitions}\n",
            ),
        ),
    ),
    Mutation(
        "no-run-record",
        "there is no run record",
        (
            Edit(
                f"{BATCH}/log.py",
                "        stored = self.store.create(key, encode(record, write_stamp(attempt), where))\n",
                "        stored = encode(record, write_stamp(attempt), where)\n",
            ),
        ),
    ),
    Mutation(
        "run-record-late",
        "the run record is written after the commit",
        (
            Edit(
                f"{BATCH}/run.py",
                "        stored = self.log.create_run(record, attempt=self.request.attempt)\n",
                "        stored = record\n",
            ),
            Edit(
                f"{BATCH}/run.py",
                "        covering = covering_upward(\n",
                "        self.log.create_run(record)\n        covering = covering_upward(\n",
            ),
        ),
    ),
    Mutation(
        "trimmed-log",
        "old plans and manifests are deleted, and used numbers are not detected",
        (
            Edit(
                f"{BATCH}/run.py",
                "        if self.log.require_marker()[0].is_resolved(plan.batch):\n",
                "        if False:\n",
            ),
            Edit(
                f"{BATCH}/objects.py",
                "        if self.log.require_marker()[0].is_resolved(plan.batch):\n            return None\n"
                "        results = ",
                "        results = ",
            ),
        ),
        trim=True,
        first=2,
    ),
    Mutation(
        "no-topic-check",
        "topic ids are not compared",
        (Edit(f"{BATCH}/incarnation.py", "    if expected and live != expected:\n", "    if False:\n"),),
        first=11,
    ),
    Mutation(
        "replaced-before-target",
        "a target is made of a log that lost landed records",
        (
            Edit(
                f"{BATCH}/run.py",
                "        refuse_replaced_log(self.source, self.log, view, log_ends)\n        window: OffsetWindow",
                "        window: OffsetWindow",
            ),
        ),
        first=30_000,
    ),
    Mutation(
        "replaced-before-plan",
        "a plan hides with its epochs what was lost since the target was made",
        (
            Edit(
                f"{BATCH}/run.py",
                "        refuse_replaced_log(self.source, self.log, view, log_ends)\n        split",
                "        split",
            ),
        ),
        first=30_002,
    ),
    Mutation(
        "replaced-in-open-batch",
        "epochs of open batches do not count",
        (
            Edit(
                f"{BATCH}/incarnation.py",
                "    reached = highest(view.marker.reached, *reached_by.values())\n",
                "    reached = view.marker.reached\n",
            ),
        ),
        first=30_125,
    ),
    Mutation(
        "lowest-epoch",
        "the marker forgets how far the log had come",
        (
            Edit(
                f"{PACKAGE}/documents/marker.py",
                "        reached = highest(reached, batch.reached)\n",
                "        reached = {**reached, **batch.reached}\n",
            ),
        ),
        first=30_011,
    ),
    Mutation(
        "content-unchecked",
        "records that are read again are not compared with the manifest",
        (
            Edit(
                f"{BATCH}/rebuild.py",
                " or built.content != entry.content or (entry.digest and built.digest != entry.digest):\n",
                ":\n",
            ),
            Edit(
                f"{BATCH}/rebuild.py",
                "    if built.size != entry.size:\n",
                "    if False:\n",
            ),
        ),
        first=122,
    ),
    Mutation(
        "digest-unchecked",
        "records that are read again are compared by their offsets only",
        (
            Edit(
                f"{BATCH}/rebuild.py",
                " or (entry.digest and built.digest != entry.digest):\n",
                ":\n",
            ),
        ),
        first=30_032,
    ),
    Mutation(
        "gone-is-done",
        "404 to Complete counts as done",
        (
            Edit(
                f"{BATCH}/objects.py",
                "                answer = self.store.complete(entry.key, entry.upload_id, entry.upload_parts())\n",
                "                answer = self.store.complete(entry.key, entry.upload_id, entry.upload_parts())\n"
                '                if answer is CompleteResult.GONE:\n                    return "visible"\n',
            ),
        ),
    ),
    Mutation(
        "ok-is-done",
        "200 to Complete counts as done",
        (
            Edit(
                f"{BATCH}/objects.py",
                "                answer = self.store.complete(entry.key, entry.upload_id, entry.upload_parts())\n",
                "                answer = self.store.complete(entry.key, entry.upload_id, entry.upload_parts())\n"
                '                if answer is CompleteResult.DONE:\n                    return "visible"\n',
            ),
        ),
    ),
    Mutation(
        "refused-is-final",
        "an upload is aborted when the store refuses once to complete it",
        (
            Edit(
                f"{BATCH}/objects.py",
                "            refusals += answer is CompleteResult.REFUSED\n",
                "            if answer is CompleteResult.REFUSED:\n"
                "                self._abort(entry)\n                return self._appears(plan, entry)\n",
            ),
        ),
    ),
    Mutation(
        "refused-aborted-first",
        "a refused upload is aborted before its object is written again",
        (
            Edit(
                f"{BATCH}/objects.py",
                '        if refusals == _S3_TRIES:\n            return "refused"\n',
                '        if refusals == _S3_TRIES:\n            self._abort(entry)\n            return "refused"\n',
            ),
        ),
    ),
    Mutation(
        "marker-not-read-again",
        "an object is written again without another read of the marker",
        (
            Edit(
                f"{BATCH}/objects.py",
                "            if only_unresolved and self.log.require_marker()[0].is_resolved(plan.batch):\n"
                "                return False\n",
                "",
            ),
        ),
        first=129,
    ),
    Mutation(
        "slices-missing",
        "a batch is decided with slices missing",
        (
            Edit(
                f"{PACKAGE}/documents/manifest.py",
                "        if [r.id for r in self.slices] != [s.id for s in plan.slices]:\n",
                "        if False:\n",
            ),
        ),
        first=18,
    ),
    Mutation(
        "no-barrier",
        "a reset does not end older batches first",
        (
            Edit(
                f"{BATCH}/roll_forward.py",
                "    older = [plan for batch, plan in sorted(view.open_plans.items()) if batch < pending.batch]\n",
                "    older: list[Plan] = []\n",
            ),
        ),
        first=10,
    ),
    Mutation(
        "upload-left",
        "an upload stays pending when its object exists after a Complete without a usable answer",
        (
            Edit(
                f"{BATCH}/objects.py",
                "if answer not in (CompleteResult.DONE, CompleteResult.GONE):\n",
                "if False:\n",
            ),
        ),
    ),
    Mutation(
        "index-early",
        "an index is written before the marker has its batches",
        (
            Edit(
                f"{BATCH}/commit.py",
                "            if self.log.replace_marker(folded, etag):\n"
                "                follow_batch(self.log, folded, plan, self.parallel)\n",
                "            follow_batch(self.log, folded, plan, self.parallel)\n"
                "            if self.log.replace_marker(folded, etag):\n",
            ),
        ),
    ),
    Mutation(
        "index-of-open",
        "all batches below a resolved one count as resolved for the index",
        (
            Edit(
                f"{BATCH}/derived/log_indexes.py",
                "            for a, b in reversed(marker.resolved):\n",
                "            for a, b in ((1, marker.last_resolved + 1),):\n",
            ),
            Edit(
                f"{BATCH}/derived/log_indexes.py",
                "        if marker.has_resolved(range(first, first + size)):\n",
                "        if first + size <= marker.last_resolved + 1:\n",
            ),
        ),
        first=6,
    ),
    Mutation(
        "index-trusted",
        "offsets are those of the index, not those of the plan",
        (
            Edit(
                f"{BATCH}/coverage.py",
                "            yield from self._examine([plan for plan, _ in plans])\n",
                "            for plan, _ in plans:\n"
                "                self._examined.add(plan.batch)\n"
                "                self.left -= index.batches[plan.batch - index.first].claim\n"
                "                decision = self._log.read_manifest(plan.batch)\n"
                "                if decision.status == 'commit':\n"
                "                    yield Covering(plan, decision)\n",
            ),
        ),
        first=51,
    ),
    Mutation(
        "index-alone",
        "batches that the index does not name are not looked at",
        (
            Edit(
                f"{BATCH}/coverage.py",
                "            if self.left and self._indexed:\n",
                "            if False:\n",
            ),
        ),
        first=51,
    ),
    Mutation(
        "index-unverified",
        "the checksum of a document is not compared",
        (
            Edit(
                f"{PACKAGE}/documents/codec.py",
                '    if envelope["sha256"] != checksum:\n',
                "    if False:\n",
            ),
        ),
        first=3,
    ),
    Mutation(
        "index-of-indexes",
        "a repair makes indexes from smaller ones, which may be wrong",
        (
            Edit(
                f"{BATCH}/derived/log_indexes.py",
                "parallel=parallel, from_documents=True)",
                "parallel=parallel)",
            ),
        ),
        first=58,
    ),
    Mutation(
        "repair-absent",
        "a repair folds batches whose objects are absent",
        (
            Edit(
                f"{PACKAGE}/maintenance/repair.py",
                " or _still_missing(folded, rule, missing, gone):\n",
                ":\n",
            ),
        ),
        first=21,
    ),
    Mutation(
        "gc-blind",
        "uploads of open batches count as garbage",
        (
            Edit(
                f"{PACKAGE}/maintenance/gc.py",
                "        needed |= _needed(plan, topic_log.read_manifest(batch), old)\n",
                "        pass\n",
            ),
        ),
        first=21,
    ),
    Mutation(
        "chunk-marker-blind",
        "a marker file is replaced by what was decided before it was read",
        (
            Edit(
                f"{BATCH}/derived/chunk_markers.py",
                "        now = newest_indexes(topic_log, marker, parallel=parallel, look_back=look_back)\n",
                "        now = expected\n",
            ),
        ),
        first=20_000,
    ),
    Mutation(
        "landed-open-batch",
        "whole ranges of the source that an open batch has claimed are refused",
        (
            Edit(
                f"{BATCH}/run.py",
                "        if twice := (Offsets.of(part[:3] for part in chosen) - whole) & known:\n",
                "        if twice := Offsets.of(part[:3] for part in chosen) & known:\n",
            ),
        ),
        first=40_002,
    ),
    Mutation(
        "landed-missing",
        "records whose landed object is missing are left out as if their loss were accepted",
        (
            Edit(
                f"{PACKAGE}/reading/landed_pieces.py",
                "    except DataLossError:\n"
                "        if began or piece.entry.key not in objects.log.amended_keys(objects.plan.batch)[0]:\n",
                "    except (DataLossError, MissingObjectError):\n        if began:\n",
            ),
            Edit(
                f"{PACKAGE}/reading/landed_pieces.py",
                "import DataLossError\n",
                "import DataLossError, MissingObjectError\n",
            ),
        ),
        first=40_001,
    ),
    Mutation(
        "expiry-not-begun",
        "objects are deleted without a note that their deletion has begun, so that it can be withdrawn",
        (
            Edit(
                f"{PACKAGE}/maintenance/expiry_deletion.py",
                "                    has_begun = self._begin(waiting)\n",
                "                    has_begun = True\n",
            ),
        ),
        first=50_000,
    ),
    Mutation(
        "expiry-withdrawn",
        "an expiry is withdrawn whose deletion has begun",
        (
            Edit(
                f"{PACKAGE}/maintenance/expire.py",
                "        begun = tuple(waiting for waiting in expiry.waiting if waiting.has_begun)\n",
                "        begun = ()\n",
            ),
        ),
        first=50_006,
    ),
    Mutation(
        "expiry-one-look",
        "what keeps objects is looked at for the record only, and not again for the deletion",
        (
            Edit(
                f"{PACKAGE}/maintenance/expiry_deletion.py",
                "                kept = self._batches.kept(block, guards, GivenAway(self._log), final=True)\n",
                "                kept: dict[int, str] = {}\n",
            ),
        ),
        first=50_016,
    ),
    Mutation(
        "expiry-no-heads",
        "objects are deleted although those of the other pipeline are gone",
        (
            Edit(
                f"{PACKAGE}/reading/landed_elsewhere.py",
                "                if not all(committer.objects.are_intact(plan, decision.objects)):\n",
                "                if False:\n",
            ),
        ),
        first=50_000,
    ),
    Mutation(
        "expiry-of-both",
        "objects are deleted because the other pipeline had them, which has deleted its own",
        (
            Edit(
                f"{PACKAGE}/reading/landed_elsewhere.py",
                '            why = "has lost or deleted objects that have these records"\n',
                '            why = ""\n',
            ),
        ),
        first=50_043,
    ),
    Mutation(
        "expiry-kept-noted",
        "objects that are kept are noted as deleted",
        (
            Edit(
                f"{PACKAGE}/maintenance/expiry_deletion.py",
                "                staying = {*kept, *",
                "                staying = {*",
            ),
        ),
        first=50_006,
    ),
    Mutation(
        "expired-missing",
        "a run reports objects as gone that were deleted on purpose",
        (
            Edit(
                f"{BATCH}/presence.py",
                " and not expired.has(batch, entry)]\n",
                "]\n",
            ),
        ),
        first=50_000,
    ),
    Mutation(
        "chunk-marker-early",
        "marker files are written before the batch is in the marker",
        (
            Edit(
                f"{BATCH}/commit.py",
                "            if self.log.replace_marker(folded, etag):\n",
                "            follow_batch(self.log, folded, plan, self.parallel)\n"
                "            if self.log.replace_marker(folded, etag):\n",
            ),
            Edit(
                f"{BATCH}/derived/chunk_markers.py",
                "        marker, _ = topic_log.require_marker()\n",
                "",
            ),
        ),
        first=20_000,
    ),
)
