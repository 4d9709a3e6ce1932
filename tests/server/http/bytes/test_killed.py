"""An upload by the client that browsers use (tus-js-client) to a broker that is killed in the middle."""

from __future__ import annotations

import os
import random
import subprocess
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from tests.npm import npm_folder
from tests.server.kit import BrokerProcess
from tests.waiting import PATIENCE_S

pytestmark = pytest.mark.process

CLIENT = "tus-js-client@4.3.1"
SCRIPT = """
const tus = require("tus-js-client"), fs = require("fs");
const [file, endpoint] = process.argv.slice(1);
new tus.Upload(fs.createReadStream(file), {
  endpoint, chunkSize: 1 << 20, retryDelays: Array(1000).fill(50),
  metadata: { filename: "a.bin", filetype: "application/x-test" },
  onChunkComplete: (size, accepted) => console.log(accepted),
  onError: (error) => { console.error(error); process.exit(1) },
  onSuccess: () => process.exit(0),
}).start();
"""


@pytest.mark.slow
def test_an_upload_to_a_broker_that_is_killed_goes_on_and_holds_the_same_bytes(tmp_path: Path) -> None:
    folder = npm_folder("tus-js-client-4.3.1", CLIENT)
    data = random.Random(7).randbytes(12 << 20)
    (tmp_path / "a.bin").write_bytes(data)
    http_alone = ["--set", "flight=false", "--set", "grpc=false"]
    with BrokerProcess(tmp_path / "river", *http_alone, folder=tmp_path) as broker:
        assert httpx.post(f"{broker.http}/v1/scopes", json={"name": "iot"}).status_code == 201
        url = f"{broker.http}/v1/streams/iot/upload/bytes"
        client = subprocess.Popen(
            ["node", "-e", SCRIPT, "--", str(tmp_path / "a.bin"), url],
            cwd=folder,
            env=dict(os.environ),
            stdout=subprocess.PIPE,
        )
        assert client.stdout is not None
        assert int(client.stdout.readline()) > 0
        broker.kill()
    assert client.poll() is None
    port = ["--http-port", str(urlsplit(broker.http).port)]
    with BrokerProcess(tmp_path / "river", *http_alone, *port, folder=tmp_path) as after:
        assert client.wait(PATIENCE_S) == 0
        client.stdout.close()
        assert after.http == broker.http
        answer = httpx.get(url)
        assert answer.content == data
        assert answer.headers["content-disposition"] == 'attachment; filename="a.bin"'
