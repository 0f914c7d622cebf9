"""The commands ``abandon``, ``accept-loss``, ``reset``, ``release``, ``recover`` and ``gc``.

Each may be repeated, and may run at the same time as any run of the pipeline.
"""

from __future__ import annotations

import argparse
from typing import Any, Final

from airflow_provider_kafka_s3.cli.access import Access
from airflow_provider_kafka_s3.cli.command import Command, add_unproven
from airflow_provider_kafka_s3.cli.output import FINDINGS, OK, Answer, Table, count
from airflow_provider_kafka_s3.documents.notation import parse_offsets
from airflow_provider_kafka_s3.exceptions import ConfigurationError

__all__ = ["COMMANDS", "abandon", "accept_loss", "collect", "recover", "release", "reset"]


def abandon(access: Access) -> Answer:
    """Abandon an undecided batch."""
    arguments, topic = access.arguments, access.landed_topic()
    plan = topic.require_plan(arguments.batch)
    data: dict[str, Any] = {"batch": plan.batch, "offsets": plan.claim.to_json(), "dry_run": arguments.dry_run}
    if arguments.dry_run:
        decision = topic.log.read_manifest(plan.batch)
        state = "not decided" if decision is None else decision.status
        return Answer(
            data | {"state": state},
            [
                (
                    f"batch {plan.batch} is {state}; it claims {plan.claim}, planned by "
                    f"{topic.log.planned_by(plan.batch)}"
                ),
                f"would be abandoned, its offsets released as {arguments.release}"
                if decision is None
                else "nothing to do",
            ],
        )
    decision = topic.abandon(
        plan.batch, release=arguments.release, reason=arguments.reason, operator=arguments.operator
    )
    later = {
        "debt": f"its offsets are planned again by the next incremental run, or by {topic.log.remedies.recover()}"
        if plan.tail
        else "a run over its window plans its offsets again",
        "lost": "its offsets are recorded as lost",
    }[decision.release or "lost"]
    lines = [f"batch {plan.batch} is abandoned ({decision.release}): {later}"]
    if decision.release != arguments.release:
        lines.append(f"it was abandoned before, by {decision.operator}: that decision stands")
    return Answer(data | {"release": decision.release, "reason": decision.reason, "operator": decision.operator}, lines)


def accept_loss(access: Access) -> Answer:
    """Record objects or offsets that cannot be landed any more as lost."""
    arguments = access.arguments
    if bool(arguments.offsets) == bool(arguments.batch):
        raise ConfigurationError("name either batches by --batch, or offsets by --offsets")
    if arguments.other_cluster and (arguments.offsets or arguments.deleted):
        raise ConfigurationError(
            "--other-cluster applies only to batches that are not complete: --batch without --deleted"
        )
    topic = access.landed_topic()
    record = {"reason": arguments.reason, "operator": arguments.operator}
    if arguments.offsets:
        offsets = parse_offsets(arguments.offsets)
        if arguments.dry_run:
            left = offsets - topic.log.view().marker.covered
            return Answer({"offsets": left.to_json(), "dry_run": True}, [f"would be recorded as lost: {left}"])
        lost = topic.accept_gone(offsets, **record)
        line = f"recorded as lost: {lost}" if lost else "these offsets are covered already; nothing was changed"
        return Answer({"offsets": lost.to_json(), "dry_run": False}, [line])
    keys: dict[str, list[str]] = {}
    waiting: dict[str, list[str]] = {}
    lines = []
    for batch in sorted(set(arguments.batch)):
        pending: tuple[str, ...] = ()
        if arguments.dry_run:
            absent = topic.absent(batch)
            # No run completes the uploads of a batch that is complete.
            lost_keys, pending = (
                ((*absent.gone, *absent.pending), ()) if arguments.deleted else (absent.gone, absent.pending)
            )
            lines += [f"batch {batch}: {count(len(lost_keys), 'object')} absent, with an upload that is gone"]
        elif arguments.deleted:
            lost_keys = topic.accept_deleted(batch, **record)
        else:
            lost_keys = topic.accept_loss(batch, **record, other_cluster=arguments.other_cluster)
        if not arguments.dry_run:
            lines += [f"batch {batch} is complete, {count(len(lost_keys), 'object')} accepted as lost"]
        lines += [f"  {access.store.url(key)}" for key in lost_keys]
        if pending:
            lines += [
                (
                    f"batch {batch}: {count(len(pending), 'object')} absent, with a pending upload: it is completed; "
                    f"if the store does not complete it, the object is written again from its records, or accepted "
                    f"as lost"
                )
            ]
            lines += [f"  {access.store.url(key)}" for key in pending]
        keys[str(batch)], waiting[str(batch)] = list(lost_keys), list(pending)
    data = {"lost": keys, "dry_run": arguments.dry_run}
    return Answer(data | {"waiting": waiting} if arguments.dry_run else data, lines)


def reset(access: Access) -> Answer:
    """Continue with a topic that was created again."""
    arguments, topic = access.arguments, access.landed_topic()
    view = topic.log.view()
    live = topic.live_topic_id(view)
    data: dict[str, Any] = {"stored_topic_id": view.topic_id, "live_topic_id": live, "dry_run": arguments.dry_run}
    if arguments.dry_run:
        if live == view.topic_id and view.open_reset is None:
            return Answer(data, ["the topic is the landed one; nothing to do"])
        undecided = [n for n in view.open_plans if topic.log.read_manifest(n) is None]
        return Answer(
            data | {"undecided": undecided},
            [
                (
                    f"would close generation {view.marker.generation} (topic id {view.marker.topic_id}) and begin the "
                    f"next one with {live}"
                ),
                f"undecided batches would be recorded as lost: {undecided or 'none'}",
            ],
        )
    done = topic.reset(operator=arguments.operator)
    generation = topic.log.require_marker()[0].generation
    line = (
        f"generation {generation} begins with topic id {live}; the next run starts with the topic's first record"
        if done
        else "the topic is the landed one; nothing was changed"
    )
    return Answer(data | {"reset": done, "generation": generation}, [line])


def release(access: Access) -> Answer:
    """Let another pipeline land a topic of which this one has landed nothing."""
    arguments = access.arguments
    topic = access.topic_pipeline(arguments.topic)
    topic.require_begun()
    abandoned = list(topic.undecided())
    if not arguments.dry_run:
        topic.release(reason=arguments.reason, operator=arguments.operator)
    would = "would be" if arguments.dry_run else "is"
    name, pipeline = topic.log.topic, topic.log.pipeline
    lines = [f"topic {name} {would} released: another pipeline may land it, and {pipeline} cannot any more"]
    if abandoned:
        lines.append(f"abandoned batches: {', '.join(map(str, abandoned))}")
    return Answer({"abandoned": abandoned, "dry_run": arguments.dry_run}, lines)


def recover(access: Access) -> Answer:
    """Finish open batches, and land the offsets that abandoned ones released as debt."""
    arguments, topic = access.arguments, access.landed_topic()
    view = topic.log.view()
    if arguments.dry_run:
        owed = topic.owed(view)
        rows = [
            (n, "decided" if topic.log.read_manifest(n) else "planned", p.claim.count, topic.log.planned_by(n))
            for n, p in sorted(view.open_plans.items())
        ]
        return Answer(
            {"open": [row[0] for row in rows], "owed": owed.to_json(), "dry_run": True},
            [
                f"{count(owed.count, 'offset')} would be landed or completed: {owed}",
                *([Table(("batch", "state", "offsets", "planned by"), rows)] if rows else ()),
            ],
        )
    if arguments.decided_only:
        done = topic.roll_forward()
    else:
        done = topic.recover(operator=arguments.operator, on_data_loss=arguments.on_data_loss, wait=arguments.wait)
    lines = [f"finished batches: {', '.join(map(str, done.batches)) or 'none'}"]
    if done.undecided:
        left = ", ".join(map(str, done.undecided))
        lines.append(f"undecided, left to a run or to {topic.log.remedies.recover()}: {left}")
    return Answer(
        {"finished": list(done.batches), "undecided": list(done.undecided), "dry_run": False},
        lines,
        FINDINGS if done.undecided else OK,
    )


def collect(access: Access) -> Answer:
    """Abort uploads that no batch can complete."""
    arguments = access.arguments
    topics: dict[str, Any] = {}
    rows = []
    for topic in access.landed_topics():
        uploads = topic.find_garbage(older_than=arguments.older_than * 86_400, landed=arguments.landed)
        if not arguments.dry_run:
            topic.collect(uploads)
        numbers = {name: len(getattr(uploads, name)) for name in ("garbage", "needed", "young", "foreign")}
        pipeline, name = topic.log.pipeline, topic.log.topic
        topics[f"{pipeline}/{name}"] = numbers | {"keys": [upload.key for upload in uploads.garbage]}
        rows.append((pipeline, name, *numbers.values()))
    head = ("pipeline", "topic", "would abort" if arguments.dry_run else "aborted", "needed", "young", "foreign")
    return Answer({"topics": topics, "dry_run": arguments.dry_run}, [Table(head, rows)])


def _add_recover(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--decided-only", action="store_true", help="complete decided batches only; read no records")
    add_unproven(parser)
    parser.add_argument(
        "--on-data-loss",
        choices=("fail", "skip"),
        default="fail",
        help="offsets that Kafka has deleted: fail, or skip them and record them as lost (default: %(default)s)",
    )
    parser.add_argument(
        "--wait",
        type=float,
        default=0.0,
        metavar="SECONDS",
        help="time to wait for another run to decide its batch (default: 0)",
    )


def _add_abandon(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--batch", type=int, required=True)
    parser.add_argument(
        "--release",
        choices=("debt", "lost"),
        required=True,
        help="debt: its offsets are planned again, with the settings of that run; lost: they are never landed",
    )


def _add_accept_loss(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--batch", type=int, action="append", help="complete this batch without its lost objects; repeatable"
    )
    parser.add_argument(
        "--deleted", action="store_true", help="with --batch: the batch is complete; record its deleted objects as lost"
    )
    parser.add_argument(
        "--other-cluster",
        action="store_true",
        help="with --batch: the landed cluster is gone for good, and the connection is to another one",
    )
    parser.add_argument(
        "--offsets", help="offsets that retention deleted, as PARTITION:START-END[,…], the end excluded"
    )


def _add_gc(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--older-than", type=float, default=7.0, metavar="DAYS", help="minimum age of an upload (default: %(default)s)"
    )
    parser.add_argument(
        "--landed", action="store_true", help="also uploads of any age at keys whose offsets are landed"
    )


COMMANDS: Final = (
    Command(
        name="recover",
        run=recover,
        summary="Finish open batches, and land the offsets that abandoned ones released as debt, without Spark.",
        examples=(
            "--bucket lake --pipeline orders --topic orders --dry-run",
            "--bucket lake --pipeline orders --topic orders --decided-only",
        ),
        findings="batches that are not decided are left open",
        is_signed=True,
        add_options=_add_recover,
    ),
    Command(
        name="abandon",
        run=abandon,
        summary="Abandon an undecided batch.",
        examples=(
            "--bucket lake --pipeline orders --topic orders --batch 2 --release debt --dry-run",
            "--bucket lake --pipeline orders --topic orders --batch 2 --release debt --reason INC-7",
        ),
        is_signed=True,
        add_options=_add_abandon,
    ),
    Command(
        name="accept-loss",
        run=accept_loss,
        summary="Record objects or offsets that cannot be landed any more as lost, so that runs continue.",
        examples=(
            "--bucket lake --pipeline orders --topic orders --batch 1 --deleted --reason INC-7",
            "--bucket lake --pipeline orders --topic orders --offsets 0:100-150 --dry-run",
        ),
        is_signed=True,
        add_options=_add_accept_loss,
    ),
    Command(
        name="release",
        run=release,
        summary="Let another pipeline land a topic of which this one has landed nothing.",
        examples=(
            "--bucket lake --pipeline ordres --topic orders --dry-run",
            "--bucket lake --pipeline ordres --topic orders --reason misspelt",
        ),
        is_signed=True,
    ),
    Command(
        name="reset",
        run=reset,
        summary="Continue with a topic that was created again under the same name.",
        examples=(
            "--bucket lake --pipeline orders --topic orders --dry-run",
            "--bucket lake --pipeline orders --topic orders --reason INC-7",
        ),
        is_signed=True,
    ),
    Command(
        name="gc",
        run=collect,
        summary="Abort uploads that no batch can complete.",
        examples=(
            "--bucket lake --pipeline orders --dry-run",
            "--bucket lake --pipeline orders --topic orders --landed",
        ),
        topics="many",
        add_options=_add_gc,
    ),
)
