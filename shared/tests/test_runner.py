import json
import os
import signal
import subprocess
import sys
import time

import pytest


def test_a_second_run_finds_everything_done_and_force_runs_again(toy, tmp_path):
    log = tmp_path / "log"
    first = toy("run", "toy", "--scale", "smoke", TOY_LOG=str(log))
    assert first.returncode == 0, first.stderr
    assert "2 reproduced, 1 not reproduced, 1 not tested" in first.stdout
    before = json.loads(toy.result("draws", 1).read_text())["measures"]
    second = toy("run", "toy", "--scale", "smoke", TOY_LOG=str(log))
    assert "nothing had to be run" in second.stdout
    assert sorted(log.read_text().split()) == ["0", "1", "2"]
    assert "4 seeds run" in toy("run", "toy", "--scale", "smoke", "--force", TOY_LOG=str(log)).stdout
    assert len(log.read_text().split()) == 6
    assert json.loads(toy.result("draws", 1).read_text())["measures"] == before
    figures = {p.name for p in (toy.out / "toy/smoke/figures").iterdir()}
    assert {"running.png", "running.svg"} <= figures


def test_processor_time_leaves_out_waiting(toy):
    source = toy.folder / "toy" / "reproduce.py"
    text = source.read_text()
    source.write_text(text.replace("    for _ in run.progress", "    time.sleep(2)\n    for _ in run.progress"))
    assert toy("run", "toy", "--scale", "smoke").returncode == 0
    provenances = [json.loads(path.read_text())["provenance"] for path in toy.out.rglob("result.json")]
    waited = [p for p in provenances if p["seconds"] > 2]
    assert waited and all(0 <= p["cpu_seconds"] < 1.5 for p in waited)


def test_changed_code_is_run_again(toy):
    toy("run", "toy", "--scale", "smoke")
    source = toy.folder / "toy" / "reproduce.py"
    source.write_text(source.read_text().replace("2 * x + 1", "3 * x + 1"))
    result = toy("run", "toy", "--scale", "smoke")
    assert "4 seeds run" in result.stdout
    assert "1 reproduced, 2 not reproduced, 1 not tested" in result.stdout


def test_a_kill_in_the_middle_loses_only_the_unfinished_seed(toy, tmp_path):
    log = tmp_path / "log"
    environment = toy.environment(TOY_HANG="1", TOY_LOG=str(log))
    command = toy.command("run", "toy", "--scale", "smoke", "--jobs", "2", "--out", str(toy.out))
    with subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, start_new_session=True) as process:
        wanted = [toy.result("draws", 0), toy.result("draws", 2), toy.result("line", 0)]
        wait_for(lambda: all(p.exists() for p in wanted))
        os.killpg(process.pid, signal.SIGKILL)
    assert not toy.result("draws", 1).exists()
    log.unlink()
    result = toy("run", "toy", "--scale", "smoke", TOY_LOG=str(log))
    assert "1 seeds run" in result.stdout, result.stdout + result.stderr
    assert "3 kept" in result.stdout
    assert log.read_text().split() == ["1"]


def test_ctrl_c_keeps_what_is_finished(toy):
    environment = toy.environment(TOY_HANG="1")
    command = toy.command("run", "toy", "--scale", "smoke", "--jobs", "2", "--out", str(toy.out))
    with subprocess.Popen(
        command,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        # Where the tests themselves run in the background of a shell, Ctrl-C is ignored, and children inherit that.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    ) as process:
        wait_for(lambda: toy.result("draws", 2).exists() and toy.result("line", 0).exists())
        os.killpg(process.pid, signal.SIGINT)
        _, stderr = process.communicate(timeout=60)
    assert process.returncode == 130, stderr
    assert "3 of 4 seeds are kept; run again to continue" in stderr
    assert "Traceback" not in stderr.split("interrupted")[1]


def test_a_damaged_result_is_named_and_nothing_else_is_lost(toy, tmp_path):
    toy("run", "toy", "--scale", "smoke")
    victim = toy.result("draws", 0)
    victim.write_text(victim.read_text()[:50])
    log = tmp_path / "log"
    result = toy("run", "toy", "--scale", "smoke", TOY_LOG=str(log))
    assert f"{victim} is damaged" in result.stdout.replace("\n", "")
    assert "1 seeds run" in result.stdout and log.read_text().split() == ["0"]


def test_a_failing_experiment_does_not_stop_the_others(toy):
    result = toy("run", "toy", "--scale", "smoke", TOY_FAIL="1")
    assert result.returncode == 1
    error = toy.result("line", 0).with_name("error.txt")
    assert result.stderr == f"line-0 failed: RuntimeError: the line broke (traceback in {error})\n"
    assert error.read_text().startswith("Traceback") and "reproduce.py" in error.read_text()
    assert "no measure line.slope in this run" in toy.claims()
    assert toy.result("draws", 2).exists()
    assert toy("run", "toy", "--scale", "smoke").returncode == 0 and not error.exists()


def test_a_stale_result_of_a_failing_experiment_is_not_judged(toy):
    toy("run", "toy", "--scale", "smoke")
    source = toy.folder / "toy" / "reproduce.py"
    source.write_text(source.read_text() + "\n# changed\n")
    assert toy("run", "toy", "--scale", "smoke", TOY_FAIL="1").returncode == 1
    assert "no measure line.slope in this run" in toy.claims()


def test_a_worker_that_dies_is_told(toy):
    result = toy("run", "toy", "--scale", "smoke", "--jobs", "2", TOY_DIE="1")
    assert result.returncode == 1
    assert "a worker process died" in result.stderr and "draws-1" in result.stderr
    assert toy("run", "toy", "--scale", "smoke").returncode == 0


def test_an_unwritable_folder_is_told_before_the_work_starts(toy, tmp_path):
    blocked = tmp_path / "a file"
    blocked.write_text("")
    log = tmp_path / "log"
    result = toy("run", "toy", "--scale", "smoke", out=blocked, TOY_LOG=str(log))
    assert result.returncode == 2
    assert "cannot write to" in result.stderr and len(result.stderr.strip().splitlines()) == 1
    assert not log.exists()


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_a_full_disk_is_told(tmp_path):
    from claimlab import ClaimlabError
    from claimlab.store import write_atomic

    target = tmp_path / "x.json"
    target.write_text("old")
    (tmp_path / f".x.json.{os.getpid()}").symlink_to("/dev/full")
    with pytest.raises(ClaimlabError, match="No space left"):
        write_atomic(target, "new")
    assert target.read_text() == "old"


def test_two_runs_at_once_do_not_mix(toy):
    command = toy.command("run", "toy", "--scale", "smoke", "--jobs", "1", "--out", str(toy.out))
    with subprocess.Popen(
        command, env=toy.environment(TOY_HANG="0"), stdout=subprocess.DEVNULL, start_new_session=True
    ) as process:
        try:
            wait_for(lambda: (toy.out / "toy/smoke/.lock").exists())
            time.sleep(0.2)
            second = toy("run", "toy", "--scale", "smoke")
            assert second.returncode == 2
            assert "another run is writing to" in second.stderr
        finally:
            os.killpg(process.pid, signal.SIGKILL)
    assert toy("run", "toy", "--scale", "smoke").returncode == 0  # the lock died with its holder


def test_other_seeds_and_other_settings_are_kept_apart(toy):
    assert toy("run", "toy", "--scale", "smoke", "--first-seed", "1000", "--seeds", "2").returncode == 0
    assert (toy.out / "toy/smoke-from-1000/draws/seed-1001/result.json").exists()
    custom = toy("run", "toy", "--scale", "smoke", "--set", "centre=7", "--experiment", "draws")
    assert "toy: 2 not reproduced" in custom.stdout  # C1 and C3; the others need the experiment that was left out
    assert not (toy.out / "toy/smoke").exists()
    config = json.loads((toy.out / "toy/smoke-custom/draws/seed-0/result.json").read_text())["config"]
    assert config["centre"] == 7


def test_the_dask_backend_gives_the_same_numbers(toy):
    toy("run", "toy", "--scale", "smoke")
    expected = json.loads(toy.result("draws", 2).read_text())["measures"]
    script = (
        "from distributed import LocalCluster, Client\n"
        "from claimlab.cli import app\n"
        "if __name__ == '__main__':\n"
        "    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=':0') as c, Client(c):\n"
        f"        app(['run', 'toy', '--scale', 'smoke', '--force', '--backend', 'dask', '--out', {str(toy.out)!r}])\n"
    )
    path = toy.folder / "with_dask.py"
    path.write_text(script)
    result = subprocess.run(
        [sys.executable, str(path)], env=toy.environment(), capture_output=True, text=True, timeout=120
    )
    assert "4 seeds run" in result.stdout, result.stderr
    assert json.loads(toy.result("draws", 2).read_text())["measures"] == expected


def test_dask_without_a_cluster_and_an_unknown_backend_are_told(toy):
    assert "DASK_SCHEDULER_ADDRESS" in toy("run", "toy", "--scale", "smoke", "--backend", "dask").stderr
    assert "expected loky, dask or ray" in toy("run", "toy", "--scale", "smoke", "--backend", "threads").stderr


def wait_for(condition, seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.05)
