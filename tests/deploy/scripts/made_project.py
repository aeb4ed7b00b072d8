"""Projects of a few shell commands as tests, which need no compiler."""
import pathlib
import subprocess


def configure(folder, tests, extra=""):
    """Configures tests {name: shell command or (command, {property: value})} in `folder`; the build."""
    lines = ["cmake_minimum_required(VERSION 3.25)", "project(made NONE)", "enable_testing()"]
    for name, test in tests.items():
        command, properties = test if isinstance(test, tuple) else (test, {})
        words = f"sh -c [==[{command}]==]" if not command.startswith("/") else command
        lines.append(f"add_test(NAME {name} COMMAND {words})")
        lines += [f"set_tests_properties({name} PROPERTIES {key} [==[{value}]==])"
                  for key, value in properties.items()]
    folder = pathlib.Path(folder)
    (folder / "CMakeLists.txt").write_text("\n".join(lines) + f"\n{extra}\n")
    build = folder / "build"
    subprocess.run(["cmake", "-S", str(folder), "-B", str(build), "-G", "Ninja"], check=True,
                   capture_output=True)
    return build
