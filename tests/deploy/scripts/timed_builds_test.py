"""build_until of deploy/shell/timed_builds.sh, with a ninja of ours."""
import os
import pathlib
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[3]
# "broken" fails, "long" takes longer than any of these tests allows.
NINJA = """#!/bin/sh
for target; do :; done
case "$target" in
  broken) exit 3 ;;
  long) exec sleep 600 ;;
esac
"""


class BuildUntilTest(unittest.TestCase):
    def build(self, seconds, *targets):
        """(exit code of build_until, names of what is built)."""
        with tempfile.TemporaryDirectory() as folder:
            ninja = pathlib.Path(folder, "ninja")
            ninja.write_text(NINJA)
            ninja.chmod(0o755)
            commands = (f'source "{ROOT}/deploy/common.sh"; source "{ROOT}/deploy/shell/build_folder.sh"\n'
                        f'source "{ROOT}/deploy/shell/timed_builds.sh"\n'
                        f'code=0; build_until $((SECONDS + {seconds})) "{folder}" {" ".join(targets)} || code=$?\n'
                        'echo "code $code:" "${built[@]}"')
            done = subprocess.run(["bash", "-c", commands], capture_output=True, text=True, check=True,
                                  env={**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"})
            code, _, names = done.stdout.splitlines()[-1].removeprefix("code ").partition(":")
            return int(code), names.split()

    def test_all_that_there_is_time_for_is_built(self):
        self.assertEqual(self.build(60, "one", "two"), (0, ["one", "two"]))

    def test_what_does_not_end_in_time_is_not_built_nor_what_comes_after_it(self):
        self.assertEqual(self.build(1, "one", "long", "two"), (0, ["one"]))

    def test_nothing_is_begun_after_the_end(self):
        self.assertEqual(self.build(0, "one"), (0, []))

    def test_a_build_that_fails_is_a_failure(self):
        self.assertEqual(self.build(60, "one", "broken", "two"), (3, ["one"]))


if __name__ == "__main__":
    unittest.main()
