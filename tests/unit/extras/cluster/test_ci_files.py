"""The cluster definitions in `ci` are valid, and their commands exist.

`rayjob.schema.json` is the part of KubeRay's definition of a RayJob (ray-project/kuberay, feeaf72,
helm-chart/kuberay-operator/crds/ray.io_rayjobs.yaml, version v1) that covers the keys in our file; it allows
no others.
"""

from __future__ import annotations

import copy
import json
import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from tests.docs.commands import check

ROOT = Path(__file__).parents[4]
SCHEMA = json.loads(Path(__file__).with_name("rayjob.schema.json").read_text())
JOB = yaml.safe_load((ROOT / "ci" / "kuberay-rayjob.yaml").read_text())
SLURM = ROOT / "ci" / "slurm-ray.sh"
# from the manual of sbatch
SBATCH = {"job-name", "nodes", "ntasks-per-node", "cpus-per-task", "mem", "time", "output"}


def test_the_ray_job_is_valid() -> None:
    jsonschema.validate(JOB, SCHEMA)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (["spec", "shutdownAfterJobFinish"], True),
        (["spec", "backoffLimit"], "none"),
        (["spec", "rayClusterSpec", "workerGroupSpecs", 0, "replicas"], "eight"),
        (["spec", "rayClusterSpec", "headGroupSpec", "template", "spec", "containers", 0, "img"], "x"),
    ],
)
def test_a_mistake_in_the_ray_job_is_found(path: list[Any], value: object) -> None:
    job = copy.deepcopy(JOB)
    place = job
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(job, SCHEMA)


def test_the_command_of_the_ray_job_exists() -> None:
    check(JOB["spec"]["entrypoint"])


def test_the_ray_job_uses_the_locked_version_of_ray() -> None:
    (version,) = re.findall(r"^ray==(\S+)", (ROOT / "env" / "ray.lock").read_text(), re.M)
    assert JOB["spec"]["rayClusterSpec"]["rayVersion"] == version
    images = re.findall(r"rayproject/ray:([\d.]+)-", (ROOT / "ci" / "kuberay-rayjob.yaml").read_text())
    assert images == [version, version]


def test_the_slurm_script_has_valid_syntax_and_options() -> None:
    subprocess.run(["bash", "-n", SLURM], check=True)
    options = re.findall(r"^#SBATCH --([\w-]+)=", SLURM.read_text(), re.M)
    assert len(options) == len(re.findall("^#SBATCH", SLURM.read_text(), re.M))
    assert set(options) <= SBATCH


def test_the_command_of_the_slurm_script_exists() -> None:
    (command,) = re.findall(r"^ +(vllm-harness .+)$", SLURM.read_text(), re.M)
    check(shlex.join(shlex.split(command)))
