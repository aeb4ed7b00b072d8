import pathlib
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "deploy" / "bench"))
import build_figures as figures  # noqa: E402

LOG = """# ninja log v5
0\t12500\t1\tcontroller/CMakeFiles/tandem_x.dir/partial/a.cc.o\tabc
0\t2000\t1\tgen/tandem/v1/config.pb.h\tabc
100\t8100\t1\tcommon/ops/CMakeFiles/tandem_ops.dir/__/__/unity/tandem_ops/0.cc.o\tabc
12500\t12600\t1\tcommon/ops/libtandem_ops.a\tabc
20000\t21000\t2\tcontroller/CMakeFiles/tandem_x.dir/partial/a.cc.o\tdef
"""
DEPS = """a.cc.o: #deps 3, deps mtime 1 (VALID)
    ../common/a.cc
    ../common/base/log.h
    /usr/include/spdlog/spdlog.h

b.cc.o: #deps 2, deps mtime 1 (STALE)
    ../common/base/log.h
    /usr/include/spdlog/spdlog.h

c.cc.o: deps not found
"""


class BuildFiguresTest(unittest.TestCase):
    def test_the_newest_line_of_an_output_counts(self):
        edges = figures.edges_of(LOG)
        self.assertEqual(len(edges), 4)
        self.assertEqual(edges["controller/CMakeFiles/tandem_x.dir/partial/a.cc.o"], 1.0)

    def test_objects_and_the_most_expensive(self):
        objects = figures.objects_of(figures.edges_of(LOG))
        self.assertEqual(len(objects), 2)
        (name, seconds), = figures.most_expensive(objects, 1)
        self.assertEqual(seconds, 8.0)
        with tempfile.TemporaryDirectory() as folder:
            unit = pathlib.Path(folder, "unity/tandem_ops/0.cc")
            unit.parent.mkdir(parents=True)
            unit.write_text('#include "common/ops/a.cc"\n#include "common/ops/cpu/b.cc"\n')
            self.assertEqual(figures.source_of(name, folder), "tandem_ops 0: common/ops/a.cc common/ops/cpu/b.cc")
            self.assertEqual(figures.source_of("controller/CMakeFiles/tandem_x.dir/partial/a.cc.o", folder),
                             "controller/partial/a.cc")

    def test_lines_are_counted_once_in_each_object(self):
        readers = figures.readers_of(figures.deps_of(DEPS))
        self.assertEqual(readers["../common/base/log.h"], 2)
        lines = figures.lines_read(readers, {"../common/a.cc": 5, "../common/base/log.h": 10,
                                             "/usr/include/spdlog/spdlog.h": 100}.get)
        self.assertEqual(lines["/usr/include/spdlog/spdlog.h"], 200)
        self.assertEqual(lines["../common/base/log.h"], 20)
        self.assertFalse(figures.is_header("../common/a.cc"))
        self.assertTrue(figures.is_header("/usr/include/c++/12/vector"))

    def test_where_a_header_comes_from(self):
        root = "/home/me/tandem"
        for file, place in (("/usr/include/c++/12/vector", "standard library"),
                            ("/usr/include/absl/status/status.h", "absl"),
                            ("/usr/include/grpcpp/server.h", "gRPC"),
                            (f"{root}/build/torch_include/ATen/ATen.h", "LibTorch"),
                            (f"{root}/common/base/log.h", "common/base"),
                            ("gen/tandem/v1/config.pb.h", "generated"),
                            ("/usr/include/stdio.h", "system")):
            self.assertEqual(figures.place_of(file, root), place, file)
        self.assertEqual(figures.by_place({f"{root}/common/base/a.h": 1, f"{root}/common/base/b.h": 2}, root),
                         {"common/base": 3})

    def test_rows_have_their_verdict(self):
        seconds = {"set_up": 60.0, "configure": 10.0, "compile": 600.0, "link": 20.0, "touched_source": 41.0}
        rows = {row["row"]: row for row in figures.target_rows({"targets": "quickstart", "seconds": seconds})}
        first = rows["set-up and build of the quickstart's programs"]
        self.assertEqual((first["seconds"], first["verdict"]), (690.0, "met"))
        self.assertEqual(rows["one .cc of common touched (layout.cc)"]["verdict"], "missed")
        whole = "deploy/test.sh from nothing: set-up, build of everything, all tests"
        self.assertEqual(rows[whole]["verdict"], "not measured")
        seconds |= {"tests": 2000.0, "touched_header": 200.0, "touched_widest_header": 500.0}
        rows = figures.target_rows({"targets": "all", "seconds": seconds})
        self.assertEqual(rows[0]["verdict"], "not measured")
        self.assertEqual((rows[1]["seconds"], rows[1]["verdict"]), (2690.0, "missed"))
        self.assertEqual([(row["seconds"], row["verdict"]) for row in rows[3:5]], [(200.0, "met"), (500.0, "missed")])

    def test_the_documentation_has_the_same_rows_and_targets(self):
        text = (ROOT / "docs/reference/benchmarks.md").read_text().replace("`", "").replace(",", "")
        for row, _, target in figures.TARGETS:
            self.assertIn(f"| {row.replace(',', '')} | ≤ {target} s", text)

    def test_nothing_is_claimed_without_the_set_up(self):
        rows = figures.target_rows({"targets": "quickstart", "seconds": {"compile": 1.0}})
        self.assertEqual({row["verdict"] for row in rows}, {"not measured"})


if __name__ == "__main__":
    unittest.main()
