"""A Kubernetes cluster on loopback: its real API server, with etcd, as a process, and a stand-in for scheduler and kubelet."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Final
from urllib.error import URLError

from anabranch.spark.session.java import ensure_java
from tests.ports import free_port
from tests.spark.kube_apiserver import kube_apiserver
from tests.spark.kubelet import Api, Json, Kubelet
from tests.waiting import PATIENCE_S, until

NAMESPACE: Final = "streams"
_ADMIN: Final = "admin-of-the-tests"
_PAGE: Final = Path(__file__).parents[2] / "docs" / "how-to" / "spark-cluster.md"
_OBJECTS: Final = f"/api/v1/namespaces/{NAMESPACE}"
_RIGHTS: Final = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{NAMESPACE}"
_PLACES: Final = {
    "ServiceAccount": f"{_OBJECTS}/serviceaccounts",
    "Role": f"{_RIGHTS}/roles",
    "RoleBinding": f"{_RIGHTS}/rolebindings",
}


class KubernetesCluster:
    """A cluster with the account and role of `docs/how-to/spark-cluster.md`. `config` is the file for KUBECONFIG, with a
    token of that account: the driver has no other rights. `java` is the runtime in the pods, by default that of Spark here."""

    def __init__(self, folder: Path, *, java: Path | None = None) -> None:
        self.folder = folder
        self._java = java or ensure_java()
        self.config = folder / "kubeconfig"
        self._server = self._start()
        self._kubelet: Kubelet | None = None
        try:
            self._set_up()
        except BaseException:
            self.close()
            raise

    @property
    def master(self) -> str:
        """For `spark.master`."""
        return f"k8s://{self.api.url}"

    @property
    def started(self) -> int:
        """How many executor pods there have been."""
        assert self._kubelet is not None
        return self._kubelet.started

    def executors(self) -> dict[str, int]:
        """The processes of the executors that run, by the name of the pod, the oldest first."""
        assert self._kubelet is not None
        return self._kubelet.running()

    def phases(self) -> dict[str, str]:
        """The phase of each pod, as the API has it."""
        found = self.api.call("GET", f"{_OBJECTS}/pods")
        return {pod["metadata"]["name"]: pod["status"]["phase"] for pod in found["items"]}

    def config_maps(self) -> set[str]:
        """The config maps that drivers have there; one is Kubernetes' own."""
        found = self.api.call("GET", f"{_OBJECTS}/configmaps")
        return {each["metadata"]["name"] for each in found["items"]} - {"kube-root-ca.crt"}

    def delete_pod(self, name: str) -> None:
        """As `kubectl delete pod` does."""
        self.api.call("DELETE", f"{_OBJECTS}/pods/{name}")

    def logs(self) -> str:
        """The ends of the logs."""
        logs = [*self.folder.glob("*.log"), *self.folder.glob("*/log")]
        return "\n".join(f"{log}: {log.read_text(errors='replace')[-2_000:]}" for log in sorted(logs))

    def close(self) -> None:
        """End everything."""
        if self._kubelet is not None:
            self._kubelet.close()
        self._server.kill()
        self._server.wait(PATIENCE_S)

    def _start(self) -> subprocess.Popen[bytes]:
        port, key = free_port(), self.folder / "accounts.pem"
        generate = ["openssl", "genpkey", "-quiet", "-algorithm", "RSA", "-out", str(key)]
        subprocess.run(generate, check=True, timeout=PATIENCE_S, capture_output=True)
        (self.folder / "tokens.csv").write_text(f'{_ADMIN},admin,admin,"system:masters"\n')
        settings = {
            "bind-address": "127.0.0.1",
            "advertise-address": "127.0.0.1",
            "secure-port": str(port),
            "cert-dir": str(self.folder / "certificates"),  # the server makes its own
            "token-auth-file": str(self.folder / "tokens.csv"),
            "authorization-mode": "RBAC",
            "service-account-issuer": "https://kubernetes.default.svc",
            "service-account-signing-key-file": str(key),
            "service-account-key-file": str(key),
            "service-cluster-ip-range": "10.0.0.0/24",
            "endpoint-reconciler-type": "none",  # else it tells pods its address, which must not be loopback
        }
        certificate = self.folder / "certificates" / "apiserver.crt"
        self.api = Api(f"https://127.0.0.1:{port}", token=_ADMIN, ca=certificate)
        command = [str(kube_apiserver()), str(self.folder / "etcd"), str(free_port()), str(free_port())]
        with open(self.folder / "apiserver.log", "wb") as log:
            return subprocess.Popen(
                [*command, *(f"--{name}={value}" for name, value in settings.items())],
                cwd=self.folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip

    def _ready(self) -> bool:
        assert self._server.poll() is None, self.logs()
        try:
            # Until its first roles are there it answers otherwise.
            return "edit" in str(self.api.call("GET", "/apis/rbac.authorization.k8s.io/v1/clusterroles/edit"))
        except (URLError, OSError):
            return False

    def _set_up(self) -> None:
        until(self._ready)
        self.api.call("POST", "/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
        # The controller manager's part: no pod begins without this account.
        self.api.call("POST", f"{_OBJECTS}/serviceaccounts", {"metadata": {"name": "default"}})
        for manifest in manifests():
            (kind,) = re.findall(r"^kind: (\w+)$", manifest, re.MULTILINE)
            self.api.call("POST", _PLACES[kind], manifest)
        asked: Json = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
        token = self.api.call("POST", f"{_OBJECTS}/serviceaccounts/spark/token", asked)["status"]["token"]
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [
                {"name": "c", "cluster": {"server": self.api.url, "certificate-authority": str(self.api.ca)}},
            ],
            "users": [{"name": "u", "user": {"token": token}}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u", "namespace": NAMESPACE}}],
            "current-context": "x",
        }
        self.config.write_text(json.dumps(config))
        spec = find_spec("pyspark")
        assert spec is not None and spec.origin is not None
        image = {
            "PATH": os.defpath,
            "HOME": str(self.folder),
            "JAVA_HOME": str(self._java),
            "SPARK_HOME": str(Path(spec.origin).parent),
        }
        self._kubelet = Kubelet(self.api, self.folder, image=image)


@contextmanager
def kubernetes_cluster(java: Path | None = None) -> Iterator[KubernetesCluster]:
    """A cluster in a folder that is removed afterwards. Skips the test where its server can't be had."""
    kube_apiserver()  # before there is a folder
    folder = Path(tempfile.mkdtemp(prefix="anabranch-kubernetes-"))
    try:
        cluster = KubernetesCluster(folder, java=java)
        try:
            yield cluster
        finally:
            cluster.close()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def manifests() -> list[str]:
    """The account and its rights, as the page on clusters shows them."""
    (shown,) = re.findall(r"```yaml\n(.*?)```", _PAGE.read_text(), re.DOTALL)
    return [each for each in shown.split("---\n") if each.strip()]
