"""Executors in pods of their own: a real driver of Spark, real executors by the image's own command, real stores; the
API server and the kubelet are played, and let through what the chart's Role allows."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pyspark
import pytest
from feed_stub import FeedStub, StubLog
from kubernetes_stub import NAMESPACE, KubernetesStub
from ruamel.yaml import YAML
from store_process import COUNT_ONE, COUNTED, Store, until

from e2e.lib.ports import free_port
from txlog.config.cluster import TxLogCluster
from txlog.config.process_config import PipelineConfig
from txlog.local.engines.java_runtime import obtain_java_home
from txlog.pipeline.executor import EXECUTOR_BACKEND, NotStartedByDriver, build_command, read_java_options
from txlog.pipeline.kubernetes_executors import DriverPodUnknown, build_executor_settings
from txlog.pipeline.spark_settings import build_spark_settings
from txlog_operator.specs import BuildContext, executors, pipeline

ROOT = Path(__file__).parents[3]
RULES: list[dict[str, Any]] = YAML(typ="safe").load(
    (ROOT / "charts" / "txlog-operator" / "executors-role.yaml").read_text()
)
AROUND = BuildContext("txlog.example/txlog:1", pipeline_account="spark")
WORKERS = ["uk-worker-1", "uk-worker-2"]
START_S = 300.0
"""Two JVMs, one after the other, on a machine that has other work."""
FORMER = "catalogue-executor-0123abcd-exec-1"


def cluster(urls: list[str], **told: Any) -> TxLogCluster:
    return TxLogCluster.model_validate(
        {
            "apiVersion": "txlog.io/v1alpha1",
            "kind": "TxLogCluster",
            "metadata": {"name": "catalogue", "namespace": NAMESPACE},
            "spec": {
                "dataCenter": "uk",
                "peers": [{"name": "uk", "masters": 1, "address": "uk.example.net"}],
                "workers": {"external": [{"url": url} for url in urls]},
                "pipeline": {"mode": "executors", "executors": 1, **told},
            },
        }
    )


BY_A_DRIVER = {
    "SPARK_DRIVER_URL": "spark://CoarseGrainedScheduler@10.0.0.1:7078",
    "SPARK_EXECUTOR_ID": "3",
    "SPARK_EXECUTOR_CORES": "4",
    "SPARK_EXECUTOR_MEMORY": "576m",
    "SPARK_APPLICATION_ID": "spark-1",
    "SPARK_EXECUTOR_POD_IP": "10.0.0.2",
    "SPARK_RESOURCE_PROFILE_ID": "0",
    "SPARK_EXECUTOR_POD_NAME": "executor-3",
    "JAVA_HOME": "/opt/java",
}


def test_an_executor_is_the_jvm_that_its_driver_asks_for() -> None:
    given = {f"SPARK_JAVA_OPT_{number}": f"-Dn={number}" for number in (10, 2, 0)}
    told = build_command(BY_A_DRIVER | given, Path("/spark"))
    assert told[0] == "/opt/java/bin/java"
    assert told[1:4] == ["-Dn=0", "-Dn=2", "-Dn=10"], "by number, not by name"
    assert told[4:9] == ["-Xms576m", "-Xmx576m", "-cp", "/spark/jars/*", EXECUTOR_BACKEND]
    said = dict(zip(told[9::2], told[10::2], strict=True))
    assert said == {
        "--driver-url": "spark://CoarseGrainedScheduler@10.0.0.1:7078",
        "--executor-id": "3",
        "--cores": "4",
        "--app-id": "spark-1",
        "--hostname": "10.0.0.2",
        "--resourceProfileId": "0",
        "--podName": "executor-3",
    }
    assert read_java_options({"SPARK_JAVA_OPTS": "-Dother"}) == []


def test_nobody_but_a_driver_starts_an_executor() -> None:
    with pytest.raises(NotStartedByDriver, match="SPARK_EXECUTOR_ID"):
        build_command({key: value for key, value in BY_A_DRIVER.items() if key != "SPARK_EXECUTOR_ID"}, Path("/spark"))
    run = subprocess.run([sys.executable, "-m", "txlog.pipeline.executor", "driver"], capture_output=True, check=False)
    assert run.returncode == 64
    assert b"usage" in run.stderr


def config(urls: list[str], **told: Any) -> PipelineConfig:
    return pipeline.pipeline_config(cluster(urls, **told), AROUND)


def test_spark_is_told_of_pods(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POD_IP", "10.0.0.1")
    monkeypatch.setenv("POD_NAME", "driver-abcde")
    given = config(["http://a", "http://b"], executors=3, executorCores=5, executorMemory="2Gi", executorCpu="500m")
    told = build_spark_settings(given, Path("/tmp/txlog-short"))
    assert told["spark.master"] == "k8s://https://kubernetes.default.svc:443"
    assert told["spark.driver.host"] == told["spark.driver.bindAddress"] == "10.0.0.1"
    assert told["spark.kubernetes.driver.pod.name"] == "driver-abcde"
    assert (told["spark.executor.instances"], told["spark.executor.cores"]) == ("3", "5")
    assert (told["spark.executor.memory"], told["spark.executor.memoryOverhead"]) == ("768m", "1280m")
    assert told["spark.kubernetes.executor.request.cores"] == "500m"
    assert told["spark.authenticate"] == "true"
    assert told["spark.python.unix.domain.socket.dir"] == "/tmp", "the driver's own folder is in no other pod"
    prefix = told["spark.kubernetes.executor.podNamePrefix"]
    assert prefix != build_spark_settings(given, Path("/x"))["spark.kubernetes.executor.podNamePrefix"]
    assert len(prefix) <= 47, "Spark's limit"


def test_a_driver_that_is_no_pod_says_so(tmp_path: Path) -> None:
    found = config(["http://a"]).executors
    assert found is not None
    with pytest.raises(DriverPodUnknown, match="POD_NAME"):
        build_executor_settings(found, "", {"POD_IP": "10.0.0.1"})
    assert (
        build_executor_settings(found, "", {"POD_IP": "fd00::1", "POD_NAME": "d"})["spark.driver.host"] == "[fd00::1]"
    )


class Site:
    """A data centre whose Spark has its executors from a Kubernetes that is played."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.log = StubLog()
        self.feed = FeedStub(self.log, WORKERS)
        self.stores = [Store(folder / name) for name in WORKERS]
        self.kubernetes = KubernetesStub(RULES, folder)
        self.kubernetes.put("driver-abcde", {})
        self.driver: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        given = cluster([store.url for store in self.stores])
        scratch, template = self.folder / "scratch", self.folder / "executor.yaml"
        template.write_text(executors.pod_template_yaml(given, AROUND, scratch))
        told = pipeline.pipeline_config(given, AROUND)
        assert told.executors is not None
        labels = dict(word.split("=") for word in told.executors.selector.split(","))
        self.kubernetes.put(FORMER, labels)
        apart = {"template": template, "driver_port": free_port(), "blocks_port": free_port()}
        told = told.model_copy(
            update={
                "masters": [self.feed.url],
                "scratch_folder": scratch,
                "spark_master": f"k8s://{self.kubernetes.url}",
                "poll_s": 1.0,
                "executors": told.executors.model_copy(update=apart),
            }
        )
        (self.folder / "pipeline.json").write_text(told.model_dump_json())
        pod = {"POD_IP": "127.0.0.1", "POD_NAME": "driver-abcde"}
        with (self.folder / "driver.log").open("wb") as log:
            self.driver = subprocess.Popen(
                [sys.executable, "-m", "txlog.pipeline", f"--config={self.folder / 'pipeline.json'}"],
                env={**{key: value for key, value in os.environ.items() if key != "SPARK_LOCAL_IP"}, **pod},
                stderr=log,
            )

    def applied(self, count: int, seconds: float = START_S) -> None:
        last = self.log.append(*[COUNT_ONE] * count, kind=COUNTED)

        def there() -> bool:
            assert self.driver is not None
            assert self.driver.poll() is None, (self.folder / "driver.log").read_text()[-2000:]
            return all(self.feed.position(name) == last for name in WORKERS)

        until(there, seconds, f"not at {last}: {self.feed.workers}")

    def kill_driver(self) -> None:
        """kill -9 of all that runs in its container."""
        assert self.driver is not None
        for child in psutil.Process(self.driver.pid).children(recursive=True):
            child.kill()
        self.driver.kill()
        self.driver.wait()

    def close(self) -> None:
        if self.driver is not None and self.driver.poll() is None:
            self.kill_driver()
        self.kubernetes.stop()
        self.feed.stop()
        for store in self.stores:
            store.kill()


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    """With the Java of the image."""
    monkeypatch.setenv("JAVA_HOME", str(obtain_java_home(tmp_path / "java", {"TXLOG_JAVA": "wheel"})))
    site = Site(tmp_path)
    yield site
    site.close()


@pytest.mark.spark
@pytest.mark.timeout(900)
def test_executors_apply_the_log_are_replaced_and_go_with_their_driver(site: Site) -> None:
    kubernetes = site.kubernetes
    site.start()
    site.applied(5)
    assert FORMER not in kubernetes.pods, "of a process that is gone"
    (first,) = kubernetes.running()
    pod = kubernetes.pods[first]
    assert [owner["name"] for owner in pod["metadata"]["ownerReferences"]] == ["driver-abcde"]
    labels = executors.pod_template(cluster(["http://a"]), AROUND, Path("/s"))["metadata"]["labels"]
    assert labels.items() <= pod["metadata"]["labels"].items()
    restricted(pod)

    kubernetes.crash(first)
    site.applied(20)
    (second,) = kubernetes.running()
    assert second != first
    assert site.driver is not None
    assert site.driver.poll() is None

    site.driver.send_signal(signal.SIGTERM)
    assert site.driver.wait(30) == 0
    until(lambda: not kubernetes.running(), 30, "executors are left")
    assert list(kubernetes.pods) == ["driver-abcde"]
    assert [store.count() for store in site.stores] == [25, 25]
    assert kubernetes.refused == []
    assert kubernetes.asked == set(RULES[0]["verbs"]), "the Role has what is needed, and nothing else"


@pytest.mark.spark
@pytest.mark.long
@pytest.mark.timeout(900)
def test_a_driver_that_is_started_anew_has_executors_of_its_own(site: Site) -> None:
    kubernetes = site.kubernetes
    site.start()
    site.applied(5)
    (first,) = kubernetes.running()
    site.kill_driver()
    until(lambda: not kubernetes.running(), 60, "an executor without a driver goes on")
    assert first in kubernetes.pods, "nobody has removed what is left of it"
    site.start()
    site.applied(5)
    assert first not in kubernetes.pods
    assert len(kubernetes.running()) == 1
    assert [store.count() for store in site.stores] == [10, 10]
    assert kubernetes.refused == []


OF_KUBERNETES = ("spark-kubernetes_", "kubernetes-client-", "kubernetes-httpclient-", "kubernetes-model-", "vertx-")


def test_the_image_keeps_what_executors_are_made_and_started_with(tmp_path: Path) -> None:
    packages = tmp_path / "lib" / "python3.11" / "site-packages"
    jars = packages / "pyspark" / "jars"
    jars.mkdir(parents=True)
    (packages / "pyarrow").mkdir()
    for folder in ("client/api", "client/models", "aio/client/api", "aio/client/models"):
        generated = packages / "kubernetes" / folder
        generated.mkdir(parents=True)
        (generated / "__init__.py").touch()
        (generated / "v1_pod.py").touch()
    for jar in (Path(pyspark.__file__).parent / "jars").iterdir():
        (jars / jar.name).touch()
    before = {jar.name for jar in jars.iterdir()}
    subprocess.run(["sh", str(ROOT / "tools" / "slim-image"), str(tmp_path)], check=True)
    gone = before - {jar.name for jar in jars.iterdir()}
    assert {file.name for file in (packages / "kubernetes").rglob("*.py")} == {"__init__.py"}
    assert gone
    assert not [jar for jar in gone if jar.startswith(OF_KUBERNETES)]
    assert {prefix for prefix in OF_KUBERNETES if any(jar.startswith(prefix) for jar in before)} == set(OF_KUBERNETES)


def restricted(pod: dict[str, Any]) -> None:
    """What Spark made of the template keeps to the profile of that name, and to what was asked for."""
    spec, (container,) = pod["spec"], pod["spec"]["containers"]
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert spec["automountServiceAccountToken"] is False
    assert spec["restartPolicy"] == "Never"
    security = container["securityContext"]
    assert security["readOnlyRootFilesystem"] is True
    assert security["allowPrivilegeEscalation"] is False
    assert security["capabilities"] == {"drop": ["ALL"]}
    assert container["image"] == AROUND.image
    assert container["args"] == ["executor"]
    assert {volume["name"] for volume in spec["volumes"]} == {"spark-local-dir-1", "turns", "tmp"}
    assert {key: (value or {}) for volume in spec["volumes"] for key, value in volume.items() if key != "name"} == {
        "emptyDir": {}
    }
    resources = container["resources"]
    assert resources["requests"] == {"cpu": "250m", "memory": "1536Mi"}
    assert resources["limits"] == {"memory": "1536Mi"}
