"""The parts of the fault matrix's driver that need no processes: the table, the comparison, the relay."""
import pathlib
import socket
import tempfile
import threading
import unittest

import cell
import nemesis
import phases
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


class Names(unittest.TestCase):
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
        # What is not tried the next time stays.
        later = results.markdown(outcomes, [cell.Result("reward/kill/sync", "", "as expected", "")], shown)
        self.assertIn("| reward | kill | not run | not run | not run | not run | same | ends 70 | not run | not run |", later)
        self.assertIn("1 seeds, 1 with", later)


if __name__ == "__main__":
    unittest.main()
