"""Mutations that the simulation cannot catch, since it has neither such records nor such steps: unit tests do.

Each is of a check or a bound whose absence no test had noticed.
"""

from __future__ import annotations

from typing import Final

from tests.protocol.mutations import BATCH, PACKAGE, Edit, Mutation

__all__ = ["UNIT_MUTATIONS"]

_REPLAY: Final = f"{PACKAGE}/replay"
_UNIT: Final = "tests/unit"

UNIT_MUTATIONS: Final = (
    Mutation(
        "window-below-log",
        "a pipeline that begins with explicit offsets begins below the log",
        (Edit(f"{BATCH}/window_offsets.py", "max(window[p][0], earliest[p])", "window[p][0]"),),
        test=f"{_UNIT}/batch/test_topic_runs.py"
        "::test_a_first_window_of_deleted_offsets_does_not_begin_the_pipeline_below_the_log",
    ),
    Mutation(
        "window-beyond-stable",
        "a pipeline begins at a record of an open transaction",
        (Edit(f"{BATCH}/window_offsets.py", "else min(first.offset, last) for", "else first.offset for"),),
        test=f"{_UNIT}/batch/test_open_transactions.py"
        "::test_a_first_window_that_begins_in_an_open_transaction_begins_the_pipeline_before_it",
    ),
    Mutation(
        "window-ends-beyond-stable",
        "a window ends at a record of an open transaction",
        (Edit(f"{BATCH}/window_offsets.py", "min(known.get(p, last), last)", "known.get(p, last)"),),
        test=f"{_UNIT}/batch/test_open_transactions.py"
        "::test_a_window_that_ends_in_an_open_transaction_lands_what_lies_before_it",
    ),
    Mutation(
        "high-without-debt",
        "a window begins at debt, which incremental runs land",
        (
            Edit(
                f"{BATCH}/planning.py",
                "    known = view.marker.covered | view.marker.debt | view.claims\n",
                "    known = view.marker.covered | view.claims\n",
            ),
        ),
        test=f"{_UNIT}/batch/test_planning.py::test_an_interval_above_debt_leaves_the_debt_to_incremental_runs",
    ),
    Mutation(
        "marker-not-behind-plan",
        "a run does not look for the marker again behind the first plan",
        (
            Edit(
                f"{BATCH}/run.py",
                "            if self.log.read_plan(1) is not None:\n                self.log.require_marker()\n"
                "            else:\n                self._create_marker()\n",
                "            self._create_marker()\n",
            ),
        ),
        test=f"{_UNIT}/batch/test_topic_log.py::test_a_deleted_marker_does_not_land_anything_again",
    ),
    Mutation(
        "coverage-of-any-generation",
        "offsets are searched in batches of another incarnation of the topic",
        (
            Edit(
                f"{BATCH}/coverage.py",
                "if plan.generation == self._generation and plan.claim & self.left]",
                "if plan.claim & self.left]",
            ),
        ),
        test=f"{_UNIT}/batch/test_coverage.py::test_offsets_are_found_in_the_batches_of_their_generation_alone",
    ),
    Mutation(
        "coverage-unaccounted",
        "offsets that no batch accounts for are taken for landed",
        (
            Edit(
                f"{BATCH}/coverage.py",
                "        if self.left:\n            raise LogTamperedError(",
                "        if False:\n            raise LogTamperedError(",
            ),
        ),
        test=f"{_UNIT}/batch/test_coverage.py"
        "::test_a_target_that_no_batch_accounts_for_is_an_error_which_names_the_rest",
    ),
    Mutation(
        "index-unresolved",
        "an index of batches that are not resolved is used",
        (
            Edit(
                f"{BATCH}/log_index.py",
                "        if marker.has_resolved(numbers) and not cells & taken:\n",
                "        if not cells & taken:\n",
            ),
        ),
        test=f"{_UNIT}/batch/test_coverage.py::test_an_index_of_batches_that_the_marker_has_not_resolved_is_not_used",
    ),
    Mutation(
        "index-after-refusal",
        "an index after the other is offered to a store that refuses them",
        (
            Edit(
                f"{BATCH}/derived/log_indexes.py",
                "                # The store, not a document: the next one would fail, too.\n                break\n",
                "                pass\n",
            ),
        ),
        test=f"{_UNIT}/batch/test_log_index.py::test_a_store_that_refuses_an_index_is_not_asked_to_take_the_others",
    ),
    Mutation(
        "no-wait-for-first-plan",
        "a first run claims the window of one that began just before",
        (
            Edit(
                f"{BATCH}/run.py",
                " and self._adoption.first_plan_appears()",
                " and False",
            ),
        ),
        test=f"{_UNIT}/batch/test_windows.py"
        "::test_a_first_run_leaves_the_window_below_its_own_to_the_run_that_began_just_before",
    ),
    Mutation(
        "takeover-of-another-topic",
        "a takeover goes on with the marker of another topic of the same name",
        (
            Edit(
                f"{PACKAGE}/maintenance/takeover.py",
                "(marker.generation or (info.topic_id and info.topic_id != marker.topic_id))",
                "marker.generation",
            ),
        ),
        test=f"{_UNIT}/batch/test_takeover.py::test_a_marker_of_another_incarnation_of_the_topic_is_refused",
    ),
    Mutation(
        "takeover-after-reset",
        "a takeover goes on with a marker behind a reset",
        (
            Edit(
                f"{PACKAGE}/maintenance/takeover.py",
                "(marker.generation or (info.topic_id and info.topic_id != marker.topic_id))",
                "(info.topic_id and info.topic_id != marker.topic_id)",
            ),
        ),
        test=f"{_UNIT}/batch/test_takeover.py::test_a_marker_of_another_incarnation_of_the_topic_is_refused",
    ),
    Mutation(
        "early-ends-of-open",
        "as many objects as may be open count as ended early",
        (
            Edit(
                f"{BATCH}/early_ends.py",
                "if len(entries) <= rotations * most:",
                "if False:",
            ),
        ),
        test=f"{_UNIT}/batch/test_early_ends.py::test_as_many_objects_as_may_be_open_are_not_warned_of",
    ),
    Mutation(
        "early-ends-flush",
        "the objects behind the last rotation count as ended early",
        (
            Edit(
                f"{BATCH}/early_ends.py",
                "rotations = 1 if flush is None else 1 + sum",
                "rotations = 1 if flush is None else sum",
            ),
        ),
        test=f"{_UNIT}/batch/test_early_ends.py::test_as_many_objects_as_may_be_open_are_not_warned_of",
    ),
    Mutation(
        "early-ends-dead-letters",
        "dead letters count as objects that ended early",
        (
            Edit(
                f"{BATCH}/early_ends.py",
                "not entry.key.startswith(dead) and ",
                "",
            ),
        ),
        test=f"{_UNIT}/batch/test_early_ends.py::test_as_many_objects_as_may_be_open_are_not_warned_of",
    ),
    Mutation(
        "early-ends-max-bytes",
        "objects that ended by max_bytes count as ended early",
        (
            Edit(
                f"{BATCH}/early_ends.py",
                "of_values and entry.size * _MOST_COMPRESSED < layout.rotation.max_bytes",
                "of_values",
            ),
        ),
        test=f"{_UNIT}/batch/test_early_ends.py::test_objects_that_do_not_end_early_are_not_warned_of",
    ),
    Mutation(
        "early-ends-merged",
        "of slices that share objects only those of the first count",
        (
            Edit(
                f"{BATCH}/early_ends.py",
                "entries = [entry for s in group for",
                "entries = [entry for s in group[:1] for",
            ),
        ),
        test=f"{_UNIT}/batch/test_early_ends.py::test_slices_that_share_objects_are_warned_of_together",
    ),
    Mutation(
        "early-ends-needed",
        "the recommended setting is that of the last slice",
        (
            Edit(
                f"{BATCH}/early_ends.py",
                "needed = max(needed, len(inside))",
                "needed = len(inside)",
            ),
        ),
        test=f"{_UNIT}/batch/test_early_ends.py::test_the_remedy_is_enough_for_the_slice_with_the_most_folders",
    ),
    Mutation(
        "early-ends-tiny",
        "row groups are recommended however small they are",
        (
            Edit(
                f"{BATCH}/early_ends.py",
                "and row_group < _SMALLEST_ROW_GROUP:",
                "and False:",
            ),
        ),
        test=f"{_UNIT}/batch/test_early_ends.py::test_row_groups_that_would_be_tiny_are_not_recommended",
    ),
    Mutation(
        "attempts-mixed",
        "objects of one attempt are taken with the end of another one",
        (
            Edit(
                f"{PACKAGE}/spark/rows.py",
                "    if any(row.attempt != end.attempt for row in entries):\n",
                "    if False:\n",
            ),
        ),
        test=f"{_UNIT}/spark/test_task_rows.py::test_rows_that_do_not_fit_decide_nothing",
    ),
    Mutation(
        "groups-of-two-tasks",
        "slices that share objects are taken from two tasks",
        (
            Edit(
                f"{PACKAGE}/spark/rows.py",
                "if len({end.attempt for end in reported}) > 1 or (reported and not whole):",
                "if reported and not whole:",
            ),
        ),
        test=f"{_UNIT}/spark/test_slice_groups.py"
        "::test_a_group_that_two_tasks_have_read_decides_nothing_beside_a_task_too_few",
    ),
    Mutation(
        "uploads-of-failed",
        "uploads of a topic that has failed stay pending",
        (
            Edit(
                f"{PACKAGE}/spark/job.py",
                "                self._store.abort_uploads(uploads_of(index, rows))\n",
                "                pass\n",
            ),
        ),
        test=f"{_UNIT}/spark/test_job_outcomes.py::test_uploads_of_a_topic_that_has_failed_are_not_left_in_the_bucket",
    ),
    Mutation(
        "replay-skips-objects",
        "a replay of a selection is continued as if all records of the first objects had been sent",
        (Edit(f"{_REPLAY}/source.py", "        if not self._is_filtered:\n", "        if True:\n"),),
        test=f"{_UNIT}/replay/test_continuing.py::test_a_selection_is_continued_behind_each_of_its_records",
    ),
    Mutation(
        "replay-number-unchecked",
        "the records of a replayed object are not compared with the manifest",
        (Edit(f"{_REPLAY}/source.py", "planned not in entry.by_slice or ", ""),),
        test=f"{_UNIT}/replay/test_documents.py"
        "::test_any_content_of_a_document_sends_each_record_once_or_is_a_terminal_error_of_ours",
    ),
    Mutation(
        "replay-lost-objects",
        "lost objects of a selection are left out without a word",
        (
            Edit(
                f"{_REPLAY}/plan.py",
                '                self._miss("lost", f"{self.log.store.url(entry.key)} '
                '{self._why_lost(plan.batch, entry)}")\n'
                "                continue\n",
                "                continue\n",
            ),
        ),
        test=f"{_UNIT}/replay/test_planning.py"
        "::test_an_object_that_was_accepted_as_lost_is_named_if_some_of_it_is_selected",
    ),
    Mutation(
        "replay-lost-offsets",
        "lost offsets of a selection by offsets are left out without a word",
        (
            Edit(
                f"{_REPLAY}/plan.py",
                "        if accepted := lost - expired:\n",
                "        if selection.offsets is None and (accepted := lost - expired):\n",
            ),
        ),
        test=f"{_UNIT}/replay/test_planning.py::test_offsets_that_were_accepted_as_lost_are_named",
    ),
    Mutation(
        "replay-settings",
        "a replay is continued with other settings",
        (
            Edit(
                f"{_REPLAY}/run.py",
                "    differing = [name for name in wanted if wanted[name] != planned.get(name)]\n",
                "    differing: list[str] = []\n",
            ),
        ),
        test=f"{_UNIT}/replay/test_continuing.py::test_an_id_with_other_settings_is_refused",
    ),
    Mutation(
        "replay-own-plan",
        "of two that plan a replay each sends its own plan",
        (
            Edit(
                f"{_REPLAY}/run.py",
                "            plan, _ = decode(ReplayPlan, topic_log.store.create(",
                "            decode(ReplayPlan, topic_log.store.create(",
            ),
        ),
        test=f"{_UNIT}/replay/test_continuing.py::test_of_two_that_plan_the_same_replay_both_send_what_is_stored",
    ),
    Mutation(
        "replay-endless",
        "the end of a partition is not recorded",
        (
            Edit(
                f"{_REPLAY}/job.py",
                "        _create(topic_log, end_key, ReplayEnd(",
                "        (ReplayEnd(",
            ),
        ),
        test=f"{_UNIT}/replay/test_documents.py::test_a_damaged_document_ends_the_replay_with_the_way_out",
    ),
    Mutation(
        "replay-outlives-parent",
        "the process that sends goes on when its parent is killed",
        (
            Edit(
                f"{_REPLAY}/child.py",
                "    threading.Thread(target=_end_with_parent, daemon=True).start()\n",
                "",
            ),
        ),
        test=f"{_UNIT}/replay/test_process.py::test_a_process_ends_with_its_parent_whatever_it_waits_for",
    ),
    Mutation(
        "rotation-not-closed",
        "the schema of an object that ended alone stays that of its folder",
        (
            Edit(
                f"{PACKAGE}/layout/split.py",
                "        if self._rotation is not None:\n            self._rotation.close(stream[0])\n",
                "",
            ),
        ),
        test=f"{_UNIT}/layout/test_split.py::test_an_object_that_ends_alone_leaves_its_schema_behind",
    ),
    Mutation(
        "column-numbers-ignored",
        "schemas that differ in the numbers of their columns are taken for the same",
        (
            Edit(
                f"{PACKAGE}/schemas/projection.py",
                "(a.name, a.number, a.default) == (b.name, b.number, b.default)",
                "(a.name, a.default) == (b.name, b.default)",
            ),
        ),
        test=f"{_UNIT}/schemas/test_projection.py::test_schemas_with_other_numbers_of_columns_are_not_the_same",
    ),
    Mutation(
        "decimal-scale-above-precision",
        "a decimal may have a scale above its precision",
        (
            Edit(
                f"{PACKAGE}/schemas/avro.py",
                "if 0 <= scale <= precision else None",
                "if 0 <= scale else None",
            ),
        ),
        test=f"{_UNIT}/schemas/test_avro_schemas.py::test_types_of_columns",
    ),
    Mutation(
        "base64-lenient",
        "characters that are no base64 are left out of bytes in JSON",
        (
            Edit(
                f"{PACKAGE}/converters/json_scalar.py",
                "strict_mode=True",
                "strict_mode=False",
            ),
        ),
        test=f"{_UNIT}/converters/test_json_decode.py::test_a_bad_row_has_a_reason_without_its_content",
    ),
    Mutation(
        "base64-without-quotes",
        "a number of an envelope is taken for base64",
        (
            Edit(
                f"{PACKAGE}/reading/part_bytes.py",
                '    if not found[0] == found[-1] == _QUOTE:\n        raise ValueError("a field is no text")\n',
                "",
            ),
        ),
        test=f"{_UNIT}/reading/test_envelopes.py::test_bytes_are_taken_from_base64_in_quotes_alone",
    ),
    Mutation(
        "base64-of-envelopes-lenient",
        "characters that are no base64 are left out of bytes in envelopes",
        (
            Edit(
                f"{PACKAGE}/reading/part_bytes.py",
                "binascii.a2b_base64(found[1:-1], strict_mode=True)",
                "binascii.a2b_base64(found[1:-1])",
            ),
        ),
        test=f"{_UNIT}/reading/test_envelopes.py::test_bytes_are_taken_from_base64_in_quotes_alone",
    ),
    Mutation(
        "values-of-other-lines",
        "several values of a line are taken for those of others",
        (
            Edit(
                f"{PACKAGE}/reading/field_bytes.py",
                "    if len(values) != len(texts):\n",
                "    if False:\n",
            ),
        ),
        test=f"{_UNIT}/reading/test_envelopes.py::test_a_text_of_several_values_is_not_taken_for_those_of_other_lines",
    ),
    Mutation(
        "bytes-behind-rows",
        "bytes behind compressed rows are dropped",
        (
            Edit(
                f"{PACKAGE}/reading/lines.py",
                "    while file.read(_PIECE):  # what a decompressor leaves\n"
                '        raise ValueError("there are bytes behind its compressed rows")\n',
                "",
            ),
        ),
        test=f"{_UNIT}/reading/test_lines.py::test_bytes_behind_compressed_ones_are_an_error",
    ),
    Mutation(
        "line-without-end",
        "bytes behind the last separator are dropped",
        (
            Edit(
                f"{PACKAGE}/reading/lines.py",
                "            pending = [last]\n    if any(pending):\n",
                "            pending = [last]\n    if False:\n",
            ),
        ),
        test=f"{_UNIT}/reading/test_lines.py::test_bytes_behind_the_last_line_are_an_error",
    ),
    Mutation(
        "block-without-end",
        "bytes behind the last newline of envelopes are dropped",
        (
            Edit(
                f"{PACKAGE}/reading/lines.py",
                "        pending.append(piece[end:])\n    if any(pending):\n",
                "        pending.append(piece[end:])\n    if False:\n",
            ),
        ),
        test=f"{_UNIT}/reading/test_lines.py::test_bytes_behind_the_last_line_are_an_error",
    ),
    Mutation(
        "records-eof",
        "the error of compressed rows that end too early is not one of ours",
        (
            Edit(
                f"{PACKAGE}/reading/records.py",
                "(ValueError, LookupError, OSError, EOFError, _ISAL_ERROR, zlib.error, pa.ArrowException)",
                "(ValueError, LookupError, OSError, _ISAL_ERROR, zlib.error, pa.ArrowException)",
            ),
        ),
        test=f"{_UNIT}/reading/test_seek.py::test_the_beginning_of_a_longer_object_is_an_error_that_names_it",
    ),
    Mutation(
        "seek-eof",
        "the error of a block that ends too early is not one of ours",
        (
            Edit(
                f"{PACKAGE}/reading/seek_in_batch.py",
                "except (OSError, EOFError, ValueError, zlib.error) as e",
                "except (OSError, ValueError, zlib.error) as e",
            ),
        ),
        test=f"{_UNIT}/reading/test_seek.py::test_the_beginning_of_a_longer_object_is_an_error_that_names_it",
    ),
    Mutation(
        "box-of-partitions-as-bound",
        "a box around several Kafka partitions hides lost offsets of one of them",
        (
            Edit(
                f"{PACKAGE}/reading/snapshot_coverage.py",
                "                    if first < last:\n",
                "                    if False:\n",
            ),
        ),
        test=f"{_UNIT}/replay/test_planning.py"
        "::test_what_a_batch_has_of_many_partitions_hides_no_lost_offsets_and_covers_all_of_its_own",
    ),
    Mutation(
        "box-of-first-partition",
        "of a box around several Kafka partitions only the first one is covered",
        (
            Edit(
                f"{PACKAGE}/reading/snapshot_coverage.py",
                "            if first <= partition <= last\n",
                "            if first == partition\n",
            ),
        ),
        test=f"{_UNIT}/replay/test_planning.py"
        "::test_what_a_batch_has_of_many_partitions_hides_no_lost_offsets_and_covers_all_of_its_own",
    ),
    Mutation(
        "nanos-of-a-second",
        "a timestamp of Protobuf may have the nanos of a whole second",
        (
            Edit(
                f"{PACKAGE}/converters/protobuf_decode.py",
                "(nanos >= _NANOS)",
                "(nanos > _NANOS)",
            ),
        ),
        test=f"{_UNIT}/converters/test_protobuf_decode.py"
        "::test_a_timestamp_is_of_the_years_1_to_9999_and_less_than_a_second_more",
    ),
    Mutation(
        "document-with-twins",
        "a document may have a name twice",
        (
            Edit(
                f"{PACKAGE}/documents/codec.py",
                "    if len(body) != len(pairs):\n",
                "    if False:\n",
            ),
        ),
        test=f"{_UNIT}/batch/test_control_documents.py::test_a_name_that_occurs_twice_is_refused",
    ),
    Mutation(
        "document-with-huge-numbers",
        "numbers of documents may have more than 64 bits",
        (
            Edit(
                f"{PACKAGE}/documents/codec.py",
                "data, parse_int=_integer, ",
                "data, ",
            ),
        ),
        test=f"{_UNIT}/batch/test_control_documents.py"
        "::test_an_impossible_manifest_is_refused_although_its_checksum_fits",
    ),
    Mutation(
        "document-with-odd-stamps",
        "who wrote a document may be anything",
        (
            Edit(
                f"{PACKAGE}/documents/codec.py",
                "    if not all(isinstance(envelope[name], str | None) for name in _STAMPS):\n",
                "    if False:\n",
            ),
        ),
        test=f"{_UNIT}/batch/test_control_documents.py"
        "::test_an_impossible_manifest_is_refused_although_its_checksum_fits",
    ),
    Mutation(
        "marker-with-odd-history",
        "closed generations of a marker may be in any order",
        (
            Edit(
                f"{PACKAGE}/documents/marker.py",
                "[closed.generation for closed in self.history] != list(range(len(self.history))) or (",
                "(",
            ),
        ),
        test=f"{_UNIT}/batch/test_control_documents.py"
        "::test_an_impossible_marker_is_refused_although_its_checksum_fits",
    ),
    Mutation(
        "marker-with-batch-0",
        "a marker may have batch 0 as resolved",
        (
            Edit(
                f"{PACKAGE}/documents/marker.py",
                "self.resolved[0][0] >= 1 and ",
                "",
            ),
        ),
        test=f"{_UNIT}/batch/test_control_documents.py"
        "::test_an_impossible_marker_is_refused_although_its_checksum_fits",
    ),
    Mutation(
        "plan-out-of-order",
        "slices that share objects may be in any order",
        (
            Edit(
                f"{PACKAGE}/documents/plan.py",
                "        if any(_place(a) >= _place(b) for group",
                "        if any(False for group",
            ),
        ),
        test=f"{_UNIT}/batch/test_control_documents.py::test_an_impossible_plan_is_refused_although_its_checksum_fits",
    ),
    Mutation(
        "plan-with-empty-group",
        "a plan may have a group without slices",
        (
            Edit(
                f"{PACKAGE}/documents/plan.py",
                " or () in self.groups)",
                ")",
            ),
        ),
        test=f"{_UNIT}/batch/test_control_documents.py::test_an_impossible_plan_is_refused_although_its_checksum_fits",
    ),
    Mutation(
        "plan-with-late-start",
        "a later plan may have the start of the log",
        (
            Edit(
                f"{PACKAGE}/documents/plan.py",
                "(self.start is not None and self.batch != 1) or ",
                "",
            ),
        ),
        test=f"{_UNIT}/batch/test_control_documents.py::test_an_impossible_plan_is_refused_although_its_checksum_fits",
    ),
    Mutation(
        "run-without-target",
        "a run may have no target",
        (
            Edit(
                f"{PACKAGE}/documents/run.py",
                " or not self.target:",
                ":",
            ),
        ),
        test=f"{_UNIT}/batch/test_control_documents.py::test_an_impossible_run_is_refused_although_its_checksum_fits",
    ),
    Mutation(
        "run-from-batch-0",
        "a run may begin with batch 0",
        (
            Edit(
                f"{PACKAGE}/documents/run.py",
                " or self.low < 1",
                "",
            ),
        ),
        test=f"{_UNIT}/batch/test_control_documents.py::test_an_impossible_run_is_refused_although_its_checksum_fits",
    ),
    Mutation(
        "index-out-of-place",
        "an index may begin with any batch",
        (
            Edit(
                f"{PACKAGE}/documents/log_index.py",
                " or (self.first - 1) % number:",
                ":",
            ),
        ),
        test=f"{_UNIT}/batch/test_log_index.py::test_an_impossible_index_is_refused",
    ),
    Mutation(
        "replay-with-odd-nonce",
        "the names of documents of a replay may have any text",
        (
            Edit(
                f"{PACKAGE}/documents/replay.py",
                "        if _NONCE.fullmatch(self.nonce) is None:\n",
                "        if False:\n",
            ),
        ),
        test=f"{_UNIT}/batch/test_control_documents.py"
        "::test_an_impossible_plan_of_a_replay_is_refused_although_its_checksum_fits",
    ),
    Mutation(
        "replay-without-objects",
        "a partition of a replay may have no objects",
        (
            Edit(
                f"{PACKAGE}/documents/replay.py",
                "not steps or () in steps for steps in",
                "False for steps in",
            ),
        ),
        test=f"{_UNIT}/batch/test_control_documents.py"
        "::test_an_impossible_plan_of_a_replay_is_refused_although_its_checksum_fits",
    ),
    Mutation(
        "replay-of-impossible-ranges",
        "objects of a replay may have more records than offsets",
        (
            Edit(
                f"{PACKAGE}/documents/replay.py",
                "not 0 < self.records <= self.high - self.low + 1",
                "not 0 < self.records",
            ),
        ),
        test=f"{_UNIT}/batch/test_control_documents.py"
        "::test_an_impossible_plan_of_a_replay_is_refused_although_its_checksum_fits",
    ),
    Mutation(
        "manifest-with-odd-checksum",
        "the checksum of a part may be any text",
        (
            Edit(
                f"{PACKAGE}/documents/manifest.py",
                "or not all(\n            _CHECKSUM.fullmatch(checksum) for _, checksum in self.parts\n        ):",
                ":",
            ),
        ),
        test=f"{_UNIT}/batch/test_control_documents.py"
        "::test_an_impossible_manifest_is_refused_although_its_checksum_fits",
    ),
    Mutation(
        "manifest-with-odd-crc",
        "the CRC-32 of an object may be any text",
        (
            Edit(
                f"{PACKAGE}/documents/manifest.py",
                "        if _CRC32.fullmatch(self.crc32) is None:\n",
                "        if False:\n",
            ),
        ),
        test=f"{_UNIT}/batch/test_control_documents.py"
        "::test_an_impossible_manifest_is_refused_although_its_checksum_fits",
    ),
    Mutation(
        "manifest-with-odd-times",
        "the lowest timestamp of an object may be above the highest",
        (
            Edit(
                f"{PACKAGE}/documents/manifest.py",
                "self.min_timestamp > self.max_timestamp or ",
                "",
            ),
        ),
        test=f"{_UNIT}/batch/test_control_documents.py"
        "::test_an_impossible_manifest_is_refused_although_its_checksum_fits",
    ),
    Mutation(
        "manifest-with-odd-tombstones",
        "a slice may have more tombstones than records",
        (
            Edit(
                f"{PACKAGE}/documents/manifest.py",
                "not 0 <= self.tombstones <= self.records or ",
                "",
            ),
        ),
        test=f"{_UNIT}/batch/test_control_documents.py"
        "::test_an_impossible_manifest_is_refused_although_its_checksum_fits",
    ),
    Mutation(
        "dead-letters-unaccounted",
        "dead letters of a slice need not be in objects",
        (
            Edit(
                f"{PACKAGE}/documents/manifest.py",
                '            expected[dead] = (result.dead_letters, "dead letters")\n',
                "",
            ),
        ),
        test=f"{_UNIT}/batch/test_control_documents.py::test_a_commit_that_does_not_fit_its_plan_is_refused",
    ),
    Mutation(
        "uploads-of-other-slices",
        "uploads of a batch stay pending when a slice has failed",
        (
            Edit(
                f"{PACKAGE}/batch/execute.py",
                "        store.abort_uploads(",
                "        list(",
            ),
        ),
        test=f"{_UNIT}/batch/test_dead_letters.py::test_uploads_of_other_slices_are_ended_when_a_record_is_refused",
    ),
    Mutation(
        "debt-as-gap",
        "the status shows debt as a gap",
        (
            Edit(
                f"{PACKAGE}/inspect/status.py",
                "known = covered | debt | claims",
                "known = covered | claims",
            ),
        ),
        test=f"{_UNIT}/batch/test_inspection.py::test_debt_and_claims_between_landed_offsets_are_no_gaps_in_the_status",
    ),
    Mutation(
        "claims-as-gap",
        "the status shows planned offsets as a gap",
        (
            Edit(
                f"{PACKAGE}/inspect/status.py",
                "known = covered | debt | claims",
                "known = covered | debt",
            ),
        ),
        test=f"{_UNIT}/batch/test_inspection.py::test_debt_and_claims_between_landed_offsets_are_no_gaps_in_the_status",
    ),
    Mutation(
        "replay-ends-too-far",
        "the end of a partition may have more records than the plan",
        (
            Edit(
                f"{PACKAGE}/replay/job.py",
                "if end.records < 0 or (most is not None and end.records > most):",
                "if end.records < 0:",
            ),
        ),
        test=f"{_UNIT}/replay/test_documents.py::test_an_end_with_more_records_than_the_plan_is_not_believed",
    ),
    Mutation(
        "replay-of-another-partition",
        "objects of another partition are sent",
        (
            Edit(
                f"{PACKAGE}/replay/source.py",
                " or objects.plan.slices[one.slice].partition != partition:",
                ":",
            ),
        ),
        test=f"{_UNIT}/replay/test_documents.py::test_objects_of_another_partition_are_not_sent",
    ),
    Mutation(
        "coverage-by-released",
        "a batch that has released its offsets accounts for them",
        (
            Edit(
                f"{PACKAGE}/batch/coverage.py",
                "                if decision is None or decision.is_released:\n",
                "                if decision is None:\n",
            ),
        ),
        test=f"{_UNIT}/batch/test_coverage.py"
        "::test_offsets_of_an_abandoned_batch_are_found_in_the_one_that_landed_them",
    ),
    Mutation(
        "index-of-another-topic",
        "the index of another topic is used",
        (
            Edit(
                f"{PACKAGE}/batch/log.py",
                "        self._check_topic(index.topic, where)\n",
                "",
            ),
        ),
        test=f"{_UNIT}/batch/test_damaged_documents.py::test_a_document_at_the_key_of_another_one_is_an_error",
    ),
    Mutation(
        "index-of-other-batches",
        "the index of other batches is used",
        (
            Edit(
                f"{PACKAGE}/batch/log.py",
                "        if (index.first, len(index.batches)) != (numbers.start, len(numbers)):\n",
                "        if False:\n",
            ),
        ),
        test=f"{_UNIT}/batch/test_damaged_documents.py::test_an_index_at_the_key_of_another_one_is_an_error",
    ),
    Mutation(
        "run-of-another-key",
        "the target of another run is taken for that of a run",
        (
            Edit(
                f"{PACKAGE}/batch/log.py",
                "        if record.run != run:\n",
                "        if False:\n",
            ),
        ),
        test=f"{_UNIT}/batch/test_damaged_documents.py::test_a_document_at_the_key_of_another_one_is_an_error",
    ),
    Mutation(
        "amend-of-another-batch",
        "losses of another batch are taken for those of a batch",
        (
            Edit(
                f"{PACKAGE}/batch/log.py",
                "            if stored[0].batch != batch:\n",
                "            if False:\n",
            ),
        ),
        test=f"{_UNIT}/batch/test_damaged_documents.py::test_a_document_at_the_key_of_another_one_is_an_error",
    ),
    Mutation(
        "owner-of-another-topic",
        "the owner of another topic is taken for that of a topic",
        (
            Edit(
                f"{PACKAGE}/documents/owner.py",
                "        if addresses.owner_key(topics_dir, owner.topic) != key:\n",
                "        if False:\n",
            ),
        ),
        test=f"{_UNIT}/batch/test_damaged_documents.py::test_a_document_at_the_key_of_another_one_is_an_error",
    ),
    Mutation(
        "job-of-another-topic",
        "a job reads a topic that was created again",
        (
            Edit(
                f"{PACKAGE}/spark/job.py",
                "            require_topic_id(committer.source, topic_log, topic_id_of(committer.log, plan))\n",
                "",
            ),
        ),
        test=f"{_UNIT}/spark/test_job_outcomes.py::test_a_topic_that_is_created_again_decides_nothing",
    ),
    Mutation(
        "error-of-another-topic",
        "the error of a job is not that its topic was created again",
        (
            Edit(
                f"{PACKAGE}/spark/job.py",
                "        require_topic_id(source, topic.committer.log, topic_id_of(topic.committer.log, plan))\n",
                "",
            ),
        ),
        test=f"{_UNIT}/spark/test_job_outcomes.py::test_a_topic_that_is_created_again_decides_nothing",
    ),
    Mutation(
        "landed-by-another-source",
        "what came from another source is landed again",
        (
            Edit(
                f"{PACKAGE}/batch/run.py",
                "for part in chosen) - whole) & known:\n",
                "for part in chosen) - whole) & NO_OFFSETS:\n",
            ),
        ),
        test=f"{_UNIT}/reading/test_landed_faults.py::test_what_came_from_another_source_is_not_landed_again",
    ),
    Mutation(
        "folders-of-two-times",
        "only the folders of the first and the last record of an object are compared",
        (
            Edit(
                f"{PACKAGE}/reading/landed_parts.py",
                "    step = max(by_time.duration_ms // 2, 1)",
                "    step = high - low + 1",
            ),
        ),
        test=f"{_UNIT}/reading/test_landed_source.py::test_a_folder_that_comes_again_does_not_hide_others",
    ),
    Mutation(
        "landed-gap-is-left-out",
        "an incremental run looks only above what it has landed",
        (
            Edit(
                f"{PACKAGE}/batch/run.py",
                "            target = incremental_target(view, ends, readable)",
                "            target = incremental_target(view, ends)",
            ),
        ),
        test=f"{_UNIT}/reading/test_landed_faults.py::test_a_gap_of_the_source_is_landed_when_it_is_filled",
    ),
    Mutation(
        "landed-not-pinned",
        "the objects of a plan are those that the source has now",
        (
            Edit(
                f"{PACKAGE}/reading/landed_source.py",
                "        return PlannedSource(self._store, plan, self._options)\n",
                "        return self\n",
            ),
        ),
        test=f"{_UNIT}/reading/test_landed_faults.py::test_each_lost_object_of_several_partitions_is_written_again",
    ),
    Mutation(
        "landed-reset-unseen",
        "a source that was reset is read as the same",
        (
            Edit(
                f"{PACKAGE}/reading/landed_source.py",
                "        return _Topic(marker.topic_id or None, marker",
                "        return _Topic((marker.history[0] if marker.history else marker).topic_id or None, marker",
            ),
        ),
        test=f"{_UNIT}/reading/test_landed_faults.py"
        "::test_a_source_whose_topic_was_created_again_is_not_read_as_the_same",
    ),
    Mutation(
        "replay-to-another-target",
        "a replay is continued to another topic of the name",
        (
            Edit(
                f"{PACKAGE}/replay/run.py",
                "    require_same_target(config, plan, target)\n",
                "",
            ),
        ),
        test=f"{_UNIT}/replay/test_continuing.py::test_a_replay_is_not_continued_to_another_topic_of_the_name",
    ),
    Mutation(
        "column-defaults-ignored",
        "schemas that differ in defaults are taken for the same",
        (
            Edit(
                f"{PACKAGE}/schemas/projection.py",
                "(a.name, a.number, a.default) == (b.name, b.number, b.default)",
                "(a.name, a.number) == (b.name, b.number)",
            ),
        ),
        test=f"{_UNIT}/schemas/test_projection.py::test_schemas_with_other_defaults_are_not_the_same",
    ),
    Mutation(
        "expired-since",
        "a verification reports objects as gone that were deleted on purpose since it began",
        (
            Edit(
                f"{PACKAGE}/inspect/verify.py",
                "            self._expired = expired_objects(self.committer.log)\n        for",
                "            pass\n        for",
            ),
        ),
        test=f"{_UNIT}/batch/test_expiry.py::test_what_expires_while_a_run_looks_at_it_is_neither_missing_nor_restored",
    ),
    Mutation(
        "landed-expired-since",
        "a run plans offsets again and again whose objects have expired since it has looked at the source",
        (
            Edit(
                f"{PACKAGE}/reading/landed_source.py",
                "            or latest.snapshot.coverage.expired_objects != expired_objects(topic_log)\n",
                "",
            ),
        ),
        test=f"{_UNIT}/reading/test_landed_faults.py::test_what_expires_behind_the_plan_is_recorded_as_a_gap_once",
    ),
    Mutation(
        "landed-gap-of-window",
        "a window over a gap of the source, whose other offsets are landed, is compared with the log as a whole",
        (
            Edit(
                f"{BATCH}/run.py",
                "        offsets = window.offsets() & view.marker.covered if window is not None else NO_OFFSETS\n",
                "        offsets = window.offsets() if window is not None else NO_OFFSETS\n",
            ),
        ),
        test=f"{_UNIT}/reading/test_landed_faults.py"
        "::test_a_window_over_a_gap_of_the_source_has_the_offsets_that_are_landed",
    ),
    Mutation(
        "repair-left-over",
        "a repair completes batches whose uploads may be pending beside their objects",
        (
            Edit(
                f"{PACKAGE}/maintenance/repair.py",
                "            committer.objects.abort(visible)\n",
                "            del visible\n",
            ),
        ),
        test=f"{_UNIT}/batch/test_repair_beside_runs.py::test_no_upload_of_a_batch_that_is_completed_stays_pending",
    ),
)
