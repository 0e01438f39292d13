"""A cluster of one machine: real etcd, API server and controllers, and stand-ins for what needs a real one: kubelet, DNS and kube-proxy.

A pod is a process of the program in the copy of the machine, as the user, with the arguments and files that the API server has for it.
Its address is in POD_NETWORK, all of which is local here; where its configuration says 0.0.0.0, that address stands, since all pods share a network.
"""

import base64
import http.client
import json
import random
import shutil
import signal
import socket
import ssl
import subprocess
import threading
import time
import urllib.request

from testing.machine import ROOT, run, until

POD_NETWORK = "10.250.0.0/16"
NODE = "node"
PROGRAMS = ROOT / "target/kubernetes"
# As long as a slow kube-proxy takes to hear of a change.
PROXY_LAG = 3


class Cluster:
    """Its API, by path."""

    def __init__(self, machine):
        self.machine, self.folder = machine, machine.folder / "cluster"
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir()
        run("ip", "route", "replace", "local", POD_NETWORK, "dev", "lo")
        shutil.copy(machine.binary, machine.root / "usr/bin/microcache")
        (machine.root / "etc/hosts").write_text("127.0.0.1 localhost app\n")
        (self.folder / "tokens").write_text("secret,admin,admin,system:masters\n")
        self.config = self.folder / "config"
        self.config.write_text(json.dumps({
            "apiVersion": "v1", "kind": "Config", "current-context": "here", "contexts": [{"name": "here", "context": {"cluster": "here", "user": "admin"}}],
            "clusters": [{"name": "here", "cluster": {"server": "https://127.0.0.1:6443", "insecure-skip-tls-verify": True}}],
            "users": [{"name": "admin", "user": {"token": "secret"}}]}))
        run("openssl", "genrsa", "-out", self.folder / "key", "2048")
        # The name that Go gives to etcd.
        self.start("server", "--data-dir", self.folder / "etcd")
        self.server = self.start(
            "kube-apiserver", "--etcd-servers=http://127.0.0.1:2379", f"--cert-dir={self.folder}", f"--token-auth-file={self.folder}/tokens",
            "--authorization-mode=RBAC", "--advertise-address=10.250.0.1", "--bind-address=127.0.0.1", "--endpoint-reconciler-type=none",
            "--service-cluster-ip-range=10.96.0.0/16", "--service-account-issuer=https://here", f"--service-account-signing-key-file={self.folder}/key", f"--service-account-key-file={self.folder}/key")
        until(self.is_ready, self.server)
        self.start("kube-controller-manager", f"--kubeconfig={self.config}", f"--cert-dir={self.folder}", "--leader-elect=false",
                   "--controllers=deployment-controller,replicaset-controller,endpointslice-controller,serviceaccount-controller")
        self("POST", "/api/v1/nodes", {"metadata": {"name": NODE}})
        # Pods that are not as restricted as can be are refused.
        self("PATCH", "/api/v1/namespaces/default", {"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "restricted"}}})

    def start(self, program, *arguments):
        log = open(self.folder / f"{program}.log", "w")
        process = subprocess.Popen([PROGRAMS / program, *arguments], stdout=log, stderr=log)
        self.machine.processes.append(process)
        return process

    def is_ready(self):
        try:
            return self("GET", "/readyz") == "ok" and self("GET", "/api/v1/namespaces/default")
        except (OSError, http.client.HTTPException):
            return False

    def __call__(self, method, path, body=None):
        kind = "application/strategic-merge-patch+json" if method == "PATCH" else "application/json"
        request = urllib.request.Request(f"https://127.0.0.1:6443{path}", json.dumps(body).encode() if body else None, method=method,
                                         headers={"Authorization": "Bearer secret", "Content-Type": kind})
        with urllib.request.urlopen(request, context=ssl._create_unverified_context(), timeout=20) as response:
            text = response.read().decode()
        return json.loads(text) if text.startswith("{") else text

    def objects(self, kind, group="api/v1", namespace="default"):
        return {item["metadata"]["name"]: item for item in self("GET", f"/{group}/namespaces/{namespace}/{kind}")["items"]}

    def helm(self, *arguments):
        return run(PROGRAMS / "helm", *arguments, "--kubeconfig", self.config)

    def kubectl(self, *arguments):
        return run(PROGRAMS / "kubectl", *arguments, "--kubeconfig", self.config)


class Pod:
    """A pod's process, and its state as a kubelet reports it."""

    def __init__(self, cluster, pod, address):
        self.cluster, self.name, self.address = cluster, pod["metadata"]["name"], address
        self.volumes = {volume["name"]: volume for volume in pod["spec"]["volumes"]}
        self.container = pod["spec"]["containers"][0]
        self.grace, self.ending, self.ready, self.failures, self.since = pod["spec"]["terminationGracePeriodSeconds"], None, False, 0, now()
        root, self.folder = cluster.machine.root, cluster.folder / self.name
        self.write_volumes()
        mounts = "".join(f"mount --bind {self.folder}/{mount['name']} {root}{mount['mountPath']}; " for mount in self.container["volumeMounts"])
        for mount in self.container["volumeMounts"]:
            (root / mount["mountPath"][1:]).mkdir(parents=True, exist_ok=True)
        user = pod["spec"]["securityContext"]["runAsUser"]
        rights = ["setpriv", "--no-new-privs", "--inh-caps=-all", "--bounding-set=-all", f"--reuid={user}", f"--regid={user}", "--clear-groups"]
        read_only = f"mount --rbind {root} {root}; mount -o remount,bind,ro {root}; "
        self.log = open(cluster.folder / f"{self.name}.log", "w+")
        self.process = subprocess.Popen(
            ["unshare", "--mount", "sh", "-ec", read_only + mounts + f'exec chroot {root} "$@"', "sh", *rights, "/usr/bin/microcache", *self.container["args"]],
            stdout=self.log, stderr=self.log)
        cluster.machine.processes.append(self.process)

    def write_volumes(self):
        """Files are links into a folder, which is replaced as a whole: what a kubelet does."""
        for name, volume in self.volumes.items():
            if "configMap" in volume:
                data = self.cluster.objects("configmaps")[volume["configMap"]["name"]]["data"]
                files = {file: text.replace("0.0.0.0", self.address) for file, text in data.items()}
            else:
                data = self.cluster.objects("secrets")[volume["secret"]["secretName"]]["data"]
                files = {item["path"]: base64.b64decode(data[item["key"]]).decode() for item in volume["secret"]["items"]}
            folder, version = self.folder / name, f"..{abs(hash(tuple(files.items())))}"
            if (folder / version).exists():
                continue
            (folder / version).mkdir(parents=True)
            for file, text in files.items():
                (folder / version / file).write_text(text)
                shutil.chown(folder / version / file, 0, 65532)
                (folder / version / file).chmod(volume.get("secret", {"defaultMode": 0o644})["defaultMode"])
                if not (folder / file).is_symlink():
                    (folder / file).symlink_to(f"..data/{file}")
            (folder / "..new").symlink_to(version)
            (folder / "..new").rename(folder / "..data")

    def probe(self):
        """The readiness probe, with its thresholds."""
        probe = self.container["readinessProbe"]
        ports = {port["name"]: port["containerPort"] for port in self.container["ports"]}
        connection = http.client.HTTPConnection(self.address, ports[probe["httpGet"]["port"]], timeout=1)
        try:
            connection.request("GET", probe["httpGet"]["path"])
            works = connection.getresponse().status < 400
        except (OSError, http.client.HTTPException):
            works = False
        finally:
            connection.close()
        self.failures = 0 if works else self.failures + 1
        was, self.ready = self.ready, works or (self.ready and self.failures < probe["failureThreshold"])
        if was != self.ready:
            self.since = now()


def now():
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


class Kubelet(threading.Thread):
    """Gives pods to the only node, runs them, probes them, ends them."""

    def __init__(self, cluster):
        super().__init__(daemon=True)
        self.cluster, self.pods, self.count, self.ended = cluster, {}, 1, []
        self.start()

    def run(self):
        while self.cluster.server.poll() is None:
            try:
                self.look()
            except (OSError, http.client.HTTPException):
                pass
            time.sleep(0.5)

    def look(self):
        for name, pod in self.cluster.objects("pods").items():
            path = f"/api/v1/namespaces/default/pods/{name}"
            if not pod["spec"].get("nodeName"):
                self.cluster("POST", f"{path}/binding", {"metadata": {"name": name}, "target": {"kind": "Node", "name": NODE}})
                self.count += 1
                self.pods[name] = Pod(self.cluster, pod, f"10.250.0.{self.count}")
            mine = self.pods[name]
            mine.write_volumes()
            mine.probe()
            if "deletionTimestamp" in pod["metadata"] and mine.ending is None:
                mine.ending = time.monotonic()
                mine.process.send_signal(signal.SIGTERM)
            if mine.ending and time.monotonic() > mine.ending + mine.grace:
                mine.process.kill()
            if mine.ending and mine.process.poll() is not None:
                self.ended.append(mine)
                del self.pods[name]
                self.cluster("DELETE", path, {"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0})
                continue
            ready = str(mine.ready)
            self.cluster("PATCH", f"{path}/status", {"status": {
                "phase": "Running", "podIP": mine.address, "podIPs": [{"ip": mine.address}],
                "conditions": [{"type": kind, "status": ready, "lastTransitionTime": mine.since} for kind in ("Ready", "ContainersReady")]}})


class ServiceProxy(threading.Thread):
    """What kube-proxy does for a Service: each connection goes to one of its addresses, which it knows late."""

    def __init__(self, cluster, service):
        super().__init__(daemon=True)
        self.cluster, self.service, self.addresses = cluster, service, []
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=256)
        self.address = self.listener.getsockname()
        threading.Thread(target=self.learn, daemon=True).start()
        self.start()

    def learn(self):
        while self.cluster.server.poll() is None:
            try:
                slices = self.cluster.objects("endpointslices", "apis/discovery.k8s.io/v1").values()
            except (OSError, http.client.HTTPException):
                continue
            found = [(endpoint["addresses"][0], part["ports"][0]["port"])
                     for part in slices if part["metadata"]["labels"]["kubernetes.io/service-name"] == self.service
                     for endpoint in part["endpoints"] or [] if endpoint["conditions"]["ready"]]
            threading.Timer(PROXY_LAG, self.__setattr__, ["addresses", found]).start()
            time.sleep(0.5)

    def run(self):
        while True:
            client, _ = self.listener.accept()
            threading.Thread(target=self.join_up, args=[client], daemon=True).start()

    def join_up(self, client):
        try:
            server = socket.create_connection(random.choice(self.addresses))
        except (OSError, IndexError):
            client.close()
            return
        back = threading.Thread(target=copy, args=[server, client], daemon=True)
        back.start()
        copy(client, server)
        back.join()
        client.close()
        server.close()


def copy(source, target):
    try:
        while data := source.recv(65536):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)
    except OSError:
        source.close()
        target.close()
