// How many threads run a kernel.
#pragma once

namespace tandem {

struct LaunchShape {
  unsigned grid_x = 1, grid_y = 1, grid_z = 1;
  unsigned threads = 128;     // a multiple of 32, at most 1024
  unsigned shared_bytes = 0;  // for SharedMemory()
};

}  // namespace tandem
