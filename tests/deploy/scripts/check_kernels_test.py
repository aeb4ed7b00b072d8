"""check_kernels.py on outputs of nvcc and ptxas written down here, so that it needs neither."""
import importlib.util
import pathlib
import subprocess
import sys
import tempfile
import unittest

SCRIPT = pathlib.Path(__file__).resolve().parents[3] / "deploy" / "scripts" / "check_kernels.py"
spec = importlib.util.spec_from_file_location("check_kernels", SCRIPT)
check_kernels = importlib.util.module_from_spec(spec)
spec.loader.exec_module(check_kernels)

PTX = """\
.version 9.0
.target sm_90
.visible .entry _ZN6tandem4cuda3SumEPf(
	.param .u64 _ZN6tandem4cuda3SumEPf_param_0
)
{
	add.f32 	%f1, %f2, %f3;
	// mma.sync is only spoken of here
	ret;

}
	// .globl	_ZN6tandem4cuda8MultiplyILi3EEEvPf
.entry _ZN6tandem4cuda8MultiplyILi3EEEvPf(
	.param .u64 _ZN6tandem4cuda8MultiplyILi3EEEvPf_param_0
)
{
	mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%f5}, {%r1}, {%r9}, {%f1};
	@%p1 mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%f5}, {%r1}, {%r9}, {%f1};
	ret;
}
"""
SUM, MULTIPLY = "_ZN6tandem4cuda3SumEPf", "_ZN6tandem4cuda8MultiplyILi3EEEvPf"


def ptxas(stack=0, stores=0, loads=0, called=0):
    """What ptxas -v says of Sum and, with these numbers, of Multiply."""
    callee = f"""\
ptxas info    : Function properties for Helper
    {called} bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
""" if called else ""
    return f"""\
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function '{MULTIPLY}' for 'sm_90'
ptxas info    : Function properties for {MULTIPLY}
    {stack} bytes stack frame, {stores} bytes spill stores, {loads} bytes spill loads
{callee}ptxas info    : Used 126 registers, used 1 barriers, 4104 bytes smem, 8 bytes cmem[2]
ptxas info    : Compile time = 48.900 ms
ptxas info    : Compiling entry function '{SUM}' for 'sm_90'
ptxas info    : Function properties for {SUM}
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 12 registers
"""


def problems(source="", text=None):
    return check_kernels.problems_of(source, check_kernels.parse_ptx(PTX),
                                     check_kernels.parse_ptxas(ptxas() if text is None else text))


class ParserTest(unittest.TestCase):
    def test_numbers_of_each_kernel(self):
        self.assertEqual(check_kernels.parse_ptxas(ptxas(56, 92, 96)), {
            MULTIPLY: {"stack": 56, "spills": 188, "registers": 126, "shared": 4104},
            SUM: {"stack": 0, "spills": 0, "registers": 12, "shared": 0}})

    def test_instructions_of_each_kernel(self):
        self.assertEqual(check_kernels.parse_ptx(PTX), {SUM: 0, MULTIPLY: 2})

    def test_what_a_kernel_calls_counts_as_its_own(self):
        self.assertEqual(problems(text=ptxas(called=32)), [f"{MULTIPLY}: 32 bytes of local memory"])


class ProblemsTest(unittest.TestCase):
    def test_a_clean_file_has_none(self):
        self.assertEqual(problems(), [])
        self.assertEqual(problems("// tensor cores: Multiply"), [])

    def test_spills_and_local_memory(self):
        self.assertEqual(problems(text=ptxas(stores=8)), [f"{MULTIPLY}: 8 bytes of spills"])
        self.assertEqual(problems(text=ptxas(loads=4)), [f"{MULTIPLY}: 4 bytes of spills"])
        self.assertEqual(problems(text=ptxas(stack=64)), [f"{MULTIPLY}: 64 bytes of local memory"])

    def test_tensor_cores_where_they_are_asked_for(self):
        without = f"{SUM}: no tensor-core instruction"
        self.assertEqual(problems("// tensor cores\n"), [without])
        self.assertEqual(problems("#include <x>\n// tensor cores: Multiply, Sum\n"), [without])
        self.assertEqual(problems("a comment on // tensor cores\n"), [])

    def test_a_name_that_no_kernel_has(self):
        self.assertEqual(problems("// tensor cores: Multiplied"),
                         ["no kernel is called Multiplied, and its tensor cores are asked for"])

    def test_a_kernel_of_which_ptxas_says_nothing(self):
        self.assertEqual(problems(text=ptxas().split("ptxas info    : Compile time")[0]),
                         [f"{SUM}: ptxas does not say what it uses"])
        self.assertEqual(len(problems(text="")), 2)

    def test_a_file_without_kernels(self):
        self.assertEqual(check_kernels.problems_of("", {}, {}), ["it has no kernel"])


class KernelFilesTest(unittest.TestCase):
    def test_build_and_hidden_folders_are_no_sources(self):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            for name in ("common/ops/norms.cu", "tests/a.cu", ".deps/b.cu", "out/CMakeCache.txt",
                         "out/CMakeFiles/3.25.1/CompilerIdCUDA/CMakeCUDACompilerId.cu"):
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                (root / name).write_text("")
            self.assertEqual(check_kernels.kernel_files(root),
                             [root / "common/ops/norms.cu", root / "tests/a.cu"])


class CommandTest(unittest.TestCase):
    def run_on(self, source, output, code=0):
        """(exit code, output) on a tree with a kernel file, or none, and compilers that say so."""
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            (root / "kernel.ptx").write_text(PTX)
            (root / "said").write_text(output)
            (root / "nvcc").write_text("#!/bin/sh\nfor last; do :; done\n"
                                       f'cp {root}/kernel.ptx "$last"\n')
            (root / "ptxas").write_text(f"#!/bin/sh\ncat {root}/said >&2\nexit {code}\n")
            for name in ("nvcc", "ptxas"):
                (root / name).chmod(0o755)
            if source is not None:
                (root / "common").mkdir()
                (root / "common" / "gemm.cu").write_text(source)
            done = subprocess.run([sys.executable, str(SCRIPT), str(root), "--nvcc",
                                   str(root / "nvcc"), "--arch", "80-real;90-real"],
                                  capture_output=True, text=True, check=False)
            return done.returncode, done.stdout

    def test_a_line_for_each_kernel_and_architecture(self):
        code, text = self.run_on("// tensor cores: Multiply\n", ptxas())
        self.assertEqual(code, 0, text)
        self.assertIn("kernels: 1 files, 4 kernels, 0 problems", text)
        for arch in ("sm_80", "sm_90"):
            self.assertRegex(text, rf"{arch}\s+126\s+4104\s+0\s+0\s+2  gemm.cu: .*Multiply")

    def test_a_problem_is_an_exit_code(self):
        code, text = self.run_on("", ptxas(stores=8))
        self.assertEqual(code, 1)
        self.assertRegex(text, r"common/gemm.cu \(sm_90\): .*Multiply.*: 8 bytes of spills")

    def test_a_file_that_does_not_compile(self):
        code, text = self.run_on("", "ptxas fatal   : out of registers", code=255)
        self.assertEqual(code, 1)
        self.assertIn("out of registers", text)

    def test_nothing_to_check_is_no_success(self):
        code, text = self.run_on(None, ptxas())
        self.assertEqual(code, 1)
        self.assertIn("nothing was checked", text)


if __name__ == "__main__":
    unittest.main()
