"""The Helm chart: what it makes, what it refuses, and how its pods are replaced while visitors come."""

import http.client
import json
import re
import subprocess
import threading
import time

from testing.cluster import PROGRAMS, Cluster, Kubelet, ServiceProxy
from testing.machine import LIMIT_SECONDS, ROOT, Application, run

CHART, MANIFEST, GUIDE = ROOT / "packaging/helm", ROOT / "packaging/kubernetes.yaml", ROOT / "docs/guides/kubernetes.md"
ORIGIN = 3000
TOKEN = "correct-horse-battery-staple"
NEEDED = {
    "image": {"repository": "registry.example.com/microcache"}, "origin": f"http://app:{ORIGIN}", "trustedProxies": ["10.244.0.0/16"], "admin": {"token": TOKEN},
    "networkPolicy": {"visitors": [{"namespaceSelector": {}}]},
}
EVERYTHING = NEEDED | {
    "image": {"repository": "registry.example.com/microcache", "tag": "sha256:" + "0" * 64}, "autoscaling": {"enabled": True}, "reload": True,
    "redis": {"secret": "valkey"}, "config": '[[routes]]\nmatch = { path = "/a*" }\nttl = "5s"\n', "spread": "DoNotSchedule",
    "networkPolicy": NEEDED["networkPolicy"] | {"operators": [{"podSelector": {}}], "egress": [{"ports": [{"port": 53, "protocol": "UDP"}]}]},
    "service": {"type": "LoadBalancer", "externalTrafficPolicy": "Local", "annotations": {"example.com/a": "b"}},
    "serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}}, "env": [{"name": "A", "value": "b"}], "podAnnotations": {"example.com/a": "b"},
    "volumes": [{"name": "disk", "emptyDir": {"sizeLimit": "2Gi"}}], "volumeMounts": [{"name": "disk", "mountPath": "/var/cache/microcache"}],
    "podSpec": {"nodeSelector": {"a": "b"}, "priorityClassName": "system-cluster-critical"}, "resources": {"limits": {"memory": "2Gi"}},
}
REFUSED = [
    ({"origin": ""}, "origin"), ({"origin": "app:3000"}, "origin"), ({"image": {"repository": ""}}, "repository"),
    ({"trustedProxies": ["10.0.0.0/8,::"]}, "trustedProxies"), ({"trustedProxies": None}, "trustedProxies"),
    ({"admin": {"token": "short"}}, "token"), ({"admin": {}}, "admin.token"), ({"admin": {"token": TOKEN, "secret": "a"}}, "only one"),
    ({"networkPolicy": {}}, "visitors"), ({"networkPolicy": {"visitors": [{}]}}, "visitors"), ({"replica": 3}, "replica"), ({"memory": "1GiB"}, "memory"),
    ({"serviceMonitor": {"enabled": True}}, "networkPolicy.operators"), ({"config": 'redis = "redis://:secret@valkey"'}, "readable"),
    ({"origin": "http://user:secret@app"}, "readable"), ({"podSpec": {"hostNetwork": True}}, "hostNetwork"),
]


def helm(*arguments, values):
    return subprocess.run([PROGRAMS / "helm", *arguments, CHART, "--values", "-"], input=json.dumps(values), capture_output=True, text=True, cwd=ROOT)


def manifest():
    """What the chart makes of the values in the guide."""
    values = re.search(r"```yaml\n(.*?)```", GUIDE.read_text(), re.DOTALL)[1]
    done = subprocess.run([PROGRAMS / "helm", "template", "microcache", CHART, "--values", "-"], input=values, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return f"# packaging/helm with the values in {GUIDE.relative_to(ROOT)}: made by `make kubernetes-manifest`.\n{done.stdout}"


def makes_the_manifest(_machine):
    assert MANIFEST.read_text() == manifest(), "packaging/kubernetes.yaml is not what the chart makes: make kubernetes-manifest"
    for values in (NEEDED, EVERYTHING):
        done = helm("lint", "--strict", values=values)
        assert done.returncode == 0, done.stdout + done.stderr


def refuses_mistakes(_machine):
    for change, reason in REFUSED:
        done = helm("template", "microcache", values=NEEDED | change)
        assert done.returncode != 0 and reason in done.stderr, (change, reason, done.stderr)


def is_accepted_by_a_real_api_server(machine):
    cluster = Cluster(machine)
    cluster.kubectl("create", "-f", PROGRAMS / "monitoring.coreos.com_servicemonitors.yaml")
    cluster.kubectl("apply", "--dry-run=server", "--validate=strict", "-f", MANIFEST)
    install(cluster, "install", EVERYTHING)
    pod = until_there(lambda: cluster.objects("deployments", "apis/apps/v1")["microcache"])["spec"]["template"]["spec"]
    assert pod["terminationGracePeriodSeconds"] == 80 and pod["enableServiceLinks"] is False, pod
    assert pod["containers"][0]["image"].endswith("microcache@sha256:" + "0" * 64), pod
    services = cluster.objects("services")
    assert [port["port"] for port in services["microcache"]["spec"]["ports"]] == [80], services
    assert services["microcache-admin"]["spec"]["clusterIP"] == "None", services
    text = json.dumps(cluster.objects("configmaps")) + json.dumps(cluster.objects("deployments", "apis/apps/v1"))
    assert TOKEN not in text
    policy = cluster.objects("networkpolicies", "apis/networking.k8s.io/v1")["microcache"]["spec"]
    assert policy["policyTypes"] == ["Ingress", "Egress"], policy
    assert [(bool(rule["from"]), rule["ports"][0]["port"]) for rule in policy["ingress"]] == [(True, 8080), (True, 8081)], policy
    for kind, group in [("poddisruptionbudgets", "policy/v1"), ("horizontalpodautoscalers", "autoscaling/v2"), ("servicemonitors", "monitoring.coreos.com/v1")]:
        assert list(cluster.objects(kind, f"apis/{group}")) == ["microcache"], kind
    # Under a label of the namespace that refuses pods with any right, the controller makes the pods.
    until_there(lambda: cluster.objects("pods"))
    configuration = machine.folder / "microcache.toml"
    text = cluster.objects("configmaps")["microcache"]["data"]["microcache.toml"]
    (machine.folder / "token").write_text(TOKEN)
    (machine.folder / "token").chmod(0o600)
    configuration.write_text(text.replace("/run/secrets/microcache", str(machine.folder)))
    run(machine.binary, "check", configuration, env={"REDIS_URL": "redis://:secret@valkey"})


def replaces_pods_without_losing_a_request(machine):
    """The Deployment is changed under load: real controllers decide which pods start and end; a mistake stops at the first pod."""
    cluster = Cluster(machine)
    kubelet = Kubelet(cluster)
    with Application(ORIGIN):
        install(cluster, "install", NEEDED | {"minReadySeconds": 2})
        proxy = ServiceProxy(cluster, "microcache")
        until_there(lambda: len(proxy.addresses) == 2)
        first = set(kubelet.pods)
        visits = Visits(proxy.address)
        install(cluster, "upgrade", NEEDED | {"minReadySeconds": 2, "config": 'log_level = "warn"'})
        until_there(lambda: {pod.name for pod in kubelet.ended} >= first)
        assert [pod.process.returncode for pod in kubelet.ended] == [0, 0], "a pod was killed"
        before = visits.answered
        install(cluster, "upgrade", NEEDED | {"minReadySeconds": 2, "config": 'memory_ = "1GiB"'})
        broken = until_there(lambda: next((pod for pod in kubelet.pods.values() if pod.process.poll() == 2), None))
        broken.log.seek(0)
        assert "memory_" in broken.log.read()
        until_there(lambda: visits.answered > before + 500)
        assert sum(pod.ready for pod in kubelet.pods.values()) == 2, "a mistake took a pod that worked"
        visits.end()
        print(f"  {visits.answered} answered while pods were replaced, {visits.lost} lost")
        assert not visits.lost, set(visits.reasons)


def reloads_a_changed_configuration(machine):
    """No pod is replaced, and what is stored stays."""
    cluster = Cluster(machine)
    kubelet = Kubelet(cluster)
    with Application(ORIGIN):
        install(cluster, "install", NEEDED | {"reload": True, "replicas": 1})
        pod = until_there(lambda: next((pod for pod in kubelet.pods.values() if pod.ready), None))
        ask(pod.address)
        assert ask(pod.address, 8081, "/v1/stats").status == 401, "operators need no token"
        config = 'response_headers = { set = { X-New = "yes" } }'
        install(cluster, "upgrade", NEEDED | {"reload": True, "replicas": 1, "config": config})
        until_there(lambda: ask(pod.address).headers.get("X-New"))
        assert "; hit" in ask(pod.address).headers["Cache-Status"]
        assert list(kubelet.pods.values()) == [pod] and not kubelet.ended


def install(cluster, how, values):
    file = cluster.folder / "values.json"
    file.write_text(json.dumps(values))
    cluster.helm(how, "microcache", CHART, "--values", file)


def until_there(condition):
    deadline = time.monotonic() + 3 * LIMIT_SECONDS
    while not (found := condition()):
        assert time.monotonic() < deadline, "it does not come about"
        time.sleep(0.2)
    return found


def ask(address, port=8080, path="/"):
    connection = http.client.HTTPConnection(address, port, timeout=10)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        answer.read()
        return answer
    finally:
        connection.close()


class Visits:
    """Visitors: half open a connection for each request, half keep theirs until they are asked to close it."""

    def __init__(self, address):
        self.address, self.answered, self.lost, self.reasons, self.is_over = address, 0, 0, [], False
        self.threads = [threading.Thread(target=self.visit, args=[bool(number % 2)]) for number in range(8)]
        for thread in self.threads:
            thread.start()

    def visit(self, keeps):
        connection = http.client.HTTPConnection(*self.address, timeout=20)
        while not self.is_over:
            try:
                connection.request("GET", "/")
                answer = connection.getresponse()
                answer.read()
                assert answer.status == 200, answer.status
                self.answered += 1
            except (OSError, http.client.HTTPException, AssertionError) as error:
                self.lost += 1
                self.reasons.append(repr(error))
                connection.close()
            if not keeps:
                connection.close()
            time.sleep(0.02)

    def end(self):
        self.is_over = True
        for thread in self.threads:
            thread.join()
