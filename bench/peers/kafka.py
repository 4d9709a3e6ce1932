"""Apache Kafka through confluent-kafka, from jars of Maven Central."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from bench.peers.fetch import KAFKA_JARS, jar_version
from bench.peers.peer import NotInstalled, Peer, free_port

JARS = "ANABRANCH_KAFKA_JARS"  # a folder other than that of `./dev bench peers`
_CLUSTER = "AAAAAAAAAAAAAAAAAAAAAA"
_PAGE = 10_000


class Kafka(Peer):
    """One broker in KRaft mode, one topic of one partition."""

    name = "kafka"
    durability = "page cache (its default): acks=all from one broker, fsync left to the operating system"
    write_style = "confluent-kafka, produce() with acks=all, linger 5 ms, idempotent"
    read_style = f"confluent-kafka, consume({_PAGE:,})"

    def start(self) -> None:
        """See `Peer`."""
        jars = Path(os.environ.get(JARS) or KAFKA_JARS)
        version = jar_version(jars)
        if version is None:
            raise NotInstalled("its jars are not there: ./dev bench peers fetches them")
        self._version = version
        java = shutil.which("java")
        if java is None:
            raise NotInstalled("no java on the PATH")
        try:
            client: Any = import_module("confluent_kafka")
            administration: Any = import_module("confluent_kafka.admin")
        except ImportError as exc:
            raise NotInstalled("its client is not installed: ./dev bench peers installs it") from exc
        self._client = client
        port, control = free_port(), free_port()
        self._address = f"127.0.0.1:{port}"
        settings = self._folder / "server.properties"
        settings.write_text(_SETTINGS.format(port=port, control=control, folder=self._folder / "data"))
        self._java = [java, "-Xmx1g", "-cp", f"{jars}/*"]
        made = subprocess.run(
            [*self._java, "kafka.tools.StorageTool", "format", "-t", _CLUSTER, "-c", str(settings)],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        if made.returncode:
            raise NotInstalled(f"its storage can't be made: {(made.stderr or made.stdout).strip()[-200:]}")
        self._launch([*self._java, "kafka.Kafka", str(settings)])
        admin = administration.AdminClient({"bootstrap.servers": self._address, "log_level": 0})
        self._until(lambda: admin.list_topics(timeout=1), timeout_s=60)
        self._topics = iter(f"events-{number}" for number in range(1_000))
        self._make = lambda name: admin.create_topics([administration.NewTopic(name, 1, 1)])[name].result(30)
        self._producer: Any = client.Producer(
            {
                "bootstrap.servers": self._address,
                "acks": "all",
                "enable.idempotence": True,
                "linger.ms": 5,
                "queue.buffering.max.messages": 1_000_000,
                "log_level": 0,
            }
        )

    def stop(self) -> None:
        """See `Peer`."""
        self._producer.flush(5)
        del self._producer

    def version(self) -> str:
        """See `Peer`."""
        return self._version

    def write(self, bodies: Sequence[bytes], keys: Sequence[str]) -> float:
        """See `Peer`."""
        self._topic = next(self._topics)
        self._make(self._topic)
        self._written = len(bodies)
        refused: list[object] = []

        def delivered(error: object, message: object) -> None:
            if error is not None:
                refused.append(error)

        begun = time.perf_counter()
        for number, (body, key) in enumerate(zip(bodies, keys, strict=True)):
            self._producer.produce(self._topic, body, key, on_delivery=delivered)
            if number % 1_000 == 0:
                self._producer.poll(0)
        self._producer.flush(60)
        took = time.perf_counter() - begun
        assert not refused, refused[0]
        return took

    def read(self) -> tuple[int, float]:
        """See `Peer`."""
        consumer = self._client.Consumer(
            {"bootstrap.servers": self._address, "group.id": "bench", "enable.auto.commit": False, "log_level": 0}
        )
        count, begun = 0, time.perf_counter()
        try:
            consumer.assign([self._client.TopicPartition(self._topic, 0, 0)])
            while count < self._written:
                for message in consumer.consume(min(_PAGE, self._written - count), timeout=10):
                    if message.key() is not None and message.value() is not None:
                        count += 1
            return count, time.perf_counter() - begun
        finally:
            consumer.close()


_SETTINGS = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{control}
controller.listener.names=CONTROLLER
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{control}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs={folder}
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
"""
