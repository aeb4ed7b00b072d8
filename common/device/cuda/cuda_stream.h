// The driver's own types, without its header.
#pragma once

struct CUstream_st;
struct CUevent_st;
struct CUgraphExec_st;

namespace tandem {

using CudaStream = CUstream_st*;
using CudaEvent = CUevent_st*;
using CudaGraph = CUgraphExec_st*;

}  // namespace tandem
