"""The parts of the fault matrix's driver that need no run: the table, the comparison, the relay, what this machine can do,
a driver that fails, is ended or was killed."""
import io
import os
import pathlib
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import types
import unittest
import unittest.mock

import abilities
import cell
import faults
import leftovers
import nemesis
import phases
import processes
import random_kills
import relay
import results
import state
import table

HERE = pathlib.Path(__file__).resolve().parent
REST = "* | * | * | same | it goes on"


class Table(unittest.TestCase):
    def test_the_own_table_has_every_cell_and_its_faults_are_known(self):
        outcomes = table.cells_of((HERE / "table.txt").read_text(encoding="utf-8"))
        self.assertEqual(len(outcomes), len(table.ROLES) * len(table.FAULTS) * len(table.PHASES))
        self.assertEqual(set(nemesis.NEMESES), set(table.FAULTS))
        for name, outcome in outcomes.items():
            role, fault, phase = name.split("/")
            # What a process does to itself needs a point of its own.
            if outcome.kind != "none" and fault in ("hang", "exit"):
                self.assertTrue(phases.is_own(role, phase), name)

    def test_every_picked_cell_is_one(self):
        outcomes = table.cells_of((HERE / "table.txt").read_text(encoding="utf-8"))
        lines = [line for line in (HERE / "pick.txt").read_text(encoding="utf-8").splitlines() if line and line[0] != "#"]
        for name in lines:
            self.assertIn(name, outcomes)
            self.assertNotEqual(outcomes[name].kind, "none", name)
        self.assertEqual(len(lines), len(set(lines)))

    def test_the_first_row_that_fits_holds(self):
        outcomes = table.cells_of(f'trainer | kill, stop | save | ends 74 "full" | a disk\n# a comment\n\n{REST}')
        self.assertEqual(outcomes["trainer/stop/save"], table.Outcome("ends", 74, "full", "a disk"))
        self.assertEqual(outcomes["trainer/stop/sync"].kind, "same")
        self.assertEqual(str(outcomes["trainer/kill/save"]), 'ends 74 "full"')

    def test_a_table_with_a_hole_or_a_useless_row_is_refused(self):
        for text, why in (("trainer | kill | save | same | x", "have no row, the first is controller/kill/start"),
                          (f"{REST}\ntrainer | kill | save | same | x", "rows above hold"),
                          (f"trainer | killed | save | same | x\n{REST}", "there is no killed"),
                          (f"trainer | kill | save | fine | x\n{REST}", "is no outcome"),
                          (f"trainer | kill | save | ends 7 | x\n{REST}", "have an exit code and a text"),
                          (f"trainer | kill | save | none |\n{REST}", "needs a reason"),
                          (f"trainer | kill | same | x\n{REST}", "5 columns")):
            with self.assertRaisesRegex(table.TableError, why):
                table.cells_of(text)


class State(unittest.TestCase):
    def write(self, folder, config="x: 1", weights=b"weights", metrics='{"step": 1, "data": {"loss": 1, "perf/s": 2}}'):
        run_dir = folder / "run"
        step = run_dir / "checkpoints/step_1"
        step.mkdir(parents=True)
        (step / "model.safetensors").write_bytes(weights)
        (step / "controller_state.json").write_text(f'{{"version": 1, "config": "{config}"}}', encoding="utf-8")
        (run_dir / "checkpoints/controller.lock").write_text(str(folder), encoding="utf-8")
        (run_dir / "metrics.jsonl").write_text(metrics + "\n", encoding="utf-8")
        return state.state_of(run_dir)

    def test_what_differs_is_named(self):
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            expected = self.write(folder / "a")
            same = self.write(folder / "b", metrics='{"step": 1, "data": {"loss": 9}}\n'
                              '{"step": 1, "data": {"loss": 1, "perf/s": 3}}\n{"step": 1, "da')
            self.assertEqual(state.differences(expected, same), [])
            weights = state.differences(expected, self.write(folder / "c", weights=b"weightt"))
            self.assertEqual(weights, ["checkpoints/step_1/model.safetensors differs"])
            loss = state.differences(expected, self.write(folder / "d", metrics='{"step": 1, "data": {"loss": 2}}'))
            self.assertEqual(loss, ["metrics/step 1/loss differs: 2, not 1"])
            more = state.differences(expected, self.write(folder / "e", metrics='{"step": 2, "data": {"loss": 1}}'))
            self.assertEqual(more, ["metrics/step 1/loss is missing",
                                    "metrics/step 2/loss is there, and an undisturbed run has none"])

    def test_the_last_checkpoint_is_compared_whole_between_runs_of_two_folders(self):
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            states = []
            for name in ("a", "b"):
                self.write(folder / name, config=f"run: {folder / name}/run", weights=b"x" if name == "a" else b"y")
                later = folder / name / "run/checkpoints/step_10"
                shutil.copytree(folder / name / "run/checkpoints/step_1", later)
                (later / "model.safetensors").write_bytes(b"equal")
                states.append(state.last_checkpoint(folder / name / "run"))
            self.assertEqual(state.differences(*states), [])
            self.assertEqual(sorted(states[0]), ["step_10/controller_state.json/config", "step_10/controller_state.json/version",
                                                 "step_10/model.safetensors"])
            (later / "training_state.safetensors").touch()
            self.assertEqual(state.differences(states[0], state.last_checkpoint(folder / "b/run")),
                             ["step_10/training_state.safetensors is there, and an undisturbed run has none"])
            self.assertEqual(state.last_checkpoint(folder / "a"), {})

    def test_the_folder_of_the_run_is_the_only_difference_in_a_config(self):
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            one = self.write(folder / "a", config=f"run: {folder}/a/run")
            self.assertEqual(state.differences(one, self.write(folder / "b", config=f"run: {folder}/b/run")), [])
            other = self.write(folder / "c", config=f"run: {folder}/c/run2")
            self.assertEqual(state.differences(one, other), ["checkpoints/step_1/controller_state.json/config differs"
                                                             ": 'run: CELL/run2', not 'run: CELL/run'"])


class Relays(unittest.TestCase):
    def sent(self, mode, data):
        """What arrives of `data` through a relay."""
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            server.bind(str(folder / "server"))
            server.listen()
            between = relay.Relay(folder / "relay", folder / "server")
            between.misbehave(mode)
            client = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            client.connect(str(folder / "relay"))
            arrived = []

            def serve():
                far = server.accept()[0]
                while piece := far.recv(4096):
                    arrived.append(piece)
                far.close()
            reader = threading.Thread(target=serve)
            reader.start()
            client.sendall(data)
            client.shutdown(socket.SHUT_WR)
            reader.join()
            for end in (client, server):
                end.close()
            between.close()
            return b"".join(arrived), between.touched

    def test_each_mode_does_what_its_name_says(self):
        data = b"abcdefgh"
        self.assertEqual(self.sent("pass", data), (data, 0))
        self.assertEqual(self.sent("delay", data), (data, 1))
        self.assertEqual(self.sent("drop", data), (b"", 1))
        self.assertEqual(self.sent("truncate", data), (b"abcd", 1))
        self.assertEqual(self.sent("flip", data), (b"abcdufgh", 1))

    def test_a_listener_that_closes_while_it_is_waited_for_ends_its_thread(self):
        for error in (OSError, ValueError):  # as select says of a closed socket
            between = types.SimpleNamespace(ended=False, listener=None)
            with unittest.mock.patch("select.select", side_effect=error):
                self.assertIsNone(relay.Relay.accept(between))


class Abilities(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        for known in (abilities.no_small_disk, abilities.no_namespace, abilities.no_memory_group):
            known.cache_clear()
            self.addCleanup(known.cache_clear)

    def test_what_the_system_refuses_even_to_root_is_unavailable_and_says_why(self):
        refused = subprocess.CompletedProcess([], 32, "", "mount: must be superuser to use mount.\n")
        with unittest.mock.patch("subprocess.run", return_value=refused), \
                unittest.mock.patch("shutil.which", return_value="/bin/x"):
            self.assertEqual(abilities.unavailable("controller", "disk-full"),
                             "no small disk can be mounted (mount: must be superuser to use mount.)")
            self.assertIn("no network namespace can be made", abilities.unavailable("controller", "link-down"))
        self.assertEqual(abilities.unavailable("trainer", "disk-full"), "")  # its writing fails, without a disk
        self.assertEqual(abilities.unavailable("trainer", "kill"), "")

    def test_a_missing_tool_is_named(self):
        with unittest.mock.patch("shutil.which", return_value=None):
            self.assertIn("nsenter is not installed", abilities.unavailable("controller", "link-down"))
            self.assertIn("mount is not installed", abilities.unavailable("controller", "disk-full"))

    def test_a_memory_cgroup_of_version_1(self):
        (self.root / "memory").mkdir()
        (self.root / "memory/memory.limit_in_bytes").touch()
        group = abilities.MemoryGroup("g", self.root)
        self.assertEqual((self.root / "memory/g/memory.limit_in_bytes").read_text(), "65536")
        (group.folder / "memory.failcnt").write_text("3\n")
        self.assertEqual(group.hits(), 3)

    def test_a_memory_cgroup_of_version_2(self):
        (self.root / "cgroup.controllers").write_text("cpu memory pids\n")
        control = self.root / "cgroup.subtree_control"
        control.write_text("cpu\n")
        group = abilities.MemoryGroup("g", self.root)
        self.assertEqual(control.read_text(), "+memory")
        self.assertEqual({file.name: file.read_text() for file in group.folder.iterdir()},
                         {"memory.max": "65536", "memory.oom.group": "1"})
        group.take(7)
        self.assertEqual((group.folder / "cgroup.procs").read_text(), "7")
        (group.folder / "memory.events").write_text("low 0\nhigh 0\nmax 5\noom 1\noom_kill 1\n")
        self.assertEqual(group.hits(), 5)

    def test_without_a_hierarchy_that_can_be_written_the_fault_is_unavailable(self):
        with self.assertRaisesRegex(abilities.Unavailable, "no hierarchy of memory cgroups"):
            abilities.MemoryGroup("g", self.root)
        (self.root / "cgroup.controllers").write_text("cpu\n")
        with self.assertRaisesRegex(abilities.Unavailable, "no hierarchy of memory cgroups"):
            abilities.MemoryGroup("g", self.root)

    def test_what_is_skipped_is_noted_once_for_each_reason(self):
        done = [cell.Result(name, "same", "skipped", "no disk") for name in ("b/x/y", "a/x/y")]
        with tempfile.NamedTemporaryFile() as notes, unittest.mock.patch("sys.stdout", io.StringIO()), \
                unittest.mock.patch.dict(os.environ, TANDEM_CI_NOTES=notes.name):
            faults.tell_skipped([*done, cell.Result("c/x/y", "same", "as expected", "")])
            self.assertEqual(pathlib.Path(notes.name).read_text(), "faults: 2 of 3 not tried, as no disk: a/x/y, b/x/y\n")


# Ends with what a driver is to end with: a process that bears the mark of a cell, and what SIGTERM does.
DRIVER = """
import os, pathlib, signal, subprocess, sys, tempfile
import faults, leftovers, processes
driver = processes.driver()
folder = pathlib.Path(tempfile.mkdtemp(prefix=leftovers.folder_prefix(driver)))
signal.signal(signal.SIGTERM, faults.end_by(folder, driver))
cell = subprocess.Popen(["sleep", "600"], env={**os.environ, processes.MARK: f"{folder}/c0"}, stdout=subprocess.DEVNULL)
os.kill(cell.pid, signal.SIGSTOP)
print(cell.pid, flush=True)
signal.pause()
"""


class Ending(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.place = pathlib.Path(folder.name)
        self.addCleanup(setattr, tempfile, "tempdir", tempfile.tempdir)
        tempfile.tempdir = folder.name

    def start(self):
        """A driver with one cell whose process is stopped; the process as a descriptor."""
        environment = {**os.environ, "TMPDIR": str(self.place)}
        driver = subprocess.Popen([sys.executable, "-c", DRIVER], cwd=HERE, env=environment, stdout=subprocess.PIPE, text=True)
        self.addCleanup(driver.stdout.close)
        self.addCleanup(driver.wait)
        self.addCleanup(driver.kill)
        pid = int(driver.stdout.readline())
        process = os.pidfd_open(pid)
        self.addCleanup(os.close, process)
        self.addCleanup(processes.send, pid, signal.SIGKILL)
        return driver, process

    def require_ended(self, process):
        self.assertTrue(select.select([process], [], [], 60)[0], "the cell's process has outlived its driver")

    def test_a_driver_that_is_ended_takes_stopped_processes_and_its_folder_with_it(self):
        driver, process = self.start()
        driver.terminate()
        self.assertEqual(driver.wait(), 128 + signal.SIGTERM)
        self.require_ended(process)
        self.assertEqual(list(self.place.iterdir()), [])

    def test_the_next_driver_removes_what_a_killed_one_left(self):
        driver, process = self.start()
        driver.kill()
        driver.wait()
        self.assertEqual(len(list(self.place.iterdir())), 1)
        self.assertIn(driver.pid, [pid for pid, _ in leftovers.clean_up_after_the_dead()])
        self.require_ended(process)
        self.assertEqual(list(self.place.iterdir()), [])

    def test_folders_of_living_drivers_and_those_that_were_kept_stay(self):
        own = self.place / (leftovers.folder_prefix(processes.driver()) + "x")
        other = self.place / (leftovers.folder_prefix((os.getpid(), 1)) + "x")  # a process that had this id before
        kept = self.place / (leftovers.folder_prefix((os.getpid(), 2)) + "x")
        for folder in (own, other, kept, self.place / "faults-by-hand"):
            folder.mkdir()
        (kept / leftovers.KEPT).touch()
        leftovers.clean_up_after_the_dead()
        self.assertEqual(sorted(path.name for path in self.place.iterdir()), sorted([own.name, kept.name, "faults-by-hand"]))

    def test_a_driver_that_fails_in_a_cell_costs_that_cell_alone(self):
        def fails():
            raise RuntimeError("no luck")
        good = cell.Result("a/b/c", "same", "as expected", "")
        with unittest.mock.patch("sys.stdout", io.StringIO()), unittest.mock.patch("sys.stderr", io.StringIO()):
            done = faults.run_all([("trainer/kill/save", fails), ("a/b/c", lambda: good)], 1)
        self.assertEqual([result.verdict for result in done], ["wrong", "as expected"])
        self.assertRegex(done[0].what, r"^the driver failed: RuntimeError: no luck \(matrix_test.py:\d+\)$")
        outcomes = table.cells_of(f"reward | exit | * | none | z\n{REST}")
        self.assertIn("| trainer | kill | not run | not run | not run | not run | not run | WRONG | ",
                      results.markdown(outcomes, done))


class Names(unittest.TestCase):
    def test_the_wait_for_registering_is_short_only_where_a_worker_never_does(self):
        self.assertEqual(cell.first_start("trainer/stop/start"), cell.NEVER_REGISTERS)
        for name in ("trainer/stop/train", "trainer/kill/start", "controller/stop/start"):
            self.assertEqual(cell.first_start(name), {})

    def test_a_reward_service_is_never_paused_for_long(self):
        run = types.SimpleNamespace(find=lambda role, rank: 1)
        self.assertEqual(nemesis.Scene(run, "trainer", 1, "m", 30).pause_seconds, 30)
        self.assertEqual(nemesis.Scene(run, "reward", 0, "m", 30).pause_seconds, 6)

    def test_a_fault_happens_where_its_process_is_in_the_phase(self):
        self.assertEqual(cell.fault_spec("trainer/kill/train", "/m"), "trainer:1:layer:12:wait:/m")
        self.assertEqual(cell.fault_spec("trainer/kill/generate", "/m"), "controller:0:generate:2:wait:/m")
        self.assertEqual(cell.fault_spec("rollout/exit/wake", "/m"), "rollout:1:wake:2:exit:/m")

    def test_a_seed_gives_the_same_kills_again(self):
        self.assertEqual(random_kills.plan_of(7, 100), random_kills.plan_of(7, 100))
        self.assertNotEqual([random_kills.plan_of(seed, 100) for seed in range(9)],
                            [random_kills.plan_of(seed, 100) for seed in range(9, 18)])

    def test_results_show_what_was_not_run_and_what_was_wrong(self):
        outcomes = table.cells_of(f'reward | kill | save | ends 70 "x" | y\nreward | exit | * | none | z\n{REST}')
        done = [cell.Result("reward/kill/save", "", "as expected", ""), cell.Result("reward/kill/sync", "", "wrong", "w"),
                cell.Result("seed/1 x", "", "as expected", "")]
        shown = results.markdown(outcomes, done)
        self.assertIn("| reward | kill | not run | not run | not run | not run | WRONG | ends 70 | not run | not run |", shown)
        self.assertNotIn("| reward | exit |", shown)
        self.assertIn("1 seeds, 1 with", shown)
        self.assertIn("\nEverything: commit x.\n", results.markdown(outcomes, done, "", "commit x"))
        # What is not tried the next time stays.
        later = results.markdown(outcomes, [cell.Result("reward/kill/sync", "", "as expected", "")], shown)
        self.assertIn("| reward | kill | not run | not run | not run | not run | same | ends 70 | not run | not run |", later)
        self.assertIn("1 seeds, 1 with", later)
        first = results.markdown(outcomes, done, "", "commit x")
        second = results.markdown(outcomes, done[:1], first, "commit y", whole=False)
        third = results.markdown(outcomes, done[:1], second, "commit z", whole=False)
        self.assertTrue(third.endswith("\nEverything: commit x.\n\nSome cells later, by themselves: commit z.\n"), third[-200:])


if __name__ == "__main__":
    unittest.main()
