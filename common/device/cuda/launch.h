// The driver's own types, declared without its header.
#pragma once

struct CUstream_st;
struct CUevent_st;
struct CUgraphExec_st;

namespace tandem {

using CudaStream = CUstream_st*;
using CudaEvent = CUevent_st*;
using CudaGraph = CUgraphExec_st*;

// The number of threads that run a kernel.
struct LaunchShape {
  unsigned grid_x = 1, grid_y = 1, grid_z = 1;
  unsigned threads = 128;     // a multiple of 32, at most 1024
  unsigned shared_bytes = 0;  // for SharedMemory()
};

}  // namespace tandem
