// What kernel.h includes where a kernel is compiled for the emulator: its language, and Launch as a
// macro, which knows the name that the kernel has in the source. For files that are compiled alone.
#pragma once

#include "tests/emulator/emulator.h"

#define Launch(...) \
  ::tandem::emulator::LaunchNamed({#__VA_ARGS__, {__FILE__, __LINE__}}, __VA_ARGS__)
