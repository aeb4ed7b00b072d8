// A libnccl.so.2 whose only working call starts a group: it returns a communicator and an error,
// and counts the communicators that were freed.
#include <cstdint>

#include <nccl.h>

namespace {

int communicator, aborted = 0;
ncclComm_t Comm() { return reinterpret_cast<ncclComm_t>(&communicator); }

}  // namespace

extern "C" {

int FakeNcclAborted() { return aborted; }

ncclResult_t ncclGetVersion(int* version) {
  *version = NCCL_VERSION(2, 28, 9);
  return ncclSuccess;
}
const char* ncclGetErrorString(ncclResult_t /*result*/) { return "stand-in error"; }
ncclResult_t ncclGetUniqueId(ncclUniqueId* /*id*/) { return ncclSuccess; }
ncclResult_t ncclCommInitRankConfig(
    ncclComm_t* comm, int /*ranks*/, ncclUniqueId /*id*/, int rank, ncclConfig_t* /*config*/) {
  // Rank 1 fails before there is a communicator.
  *comm = rank == 1 ? nullptr : Comm();
  return ncclSystemError;
}
ncclResult_t ncclCommAbort(ncclComm_t comm) {
  if (comm != Comm()) return ncclInvalidArgument;
  ++aborted;
  return ncclSuccess;
}

// Looked up, not called.
ncclResult_t ncclCommGetAsyncError(ncclComm_t, ncclResult_t*) { return ncclInternalError; }
ncclResult_t ncclCommFinalize(ncclComm_t) { return ncclInternalError; }
ncclResult_t ncclCommDestroy(ncclComm_t) { return ncclInternalError; }
ncclResult_t ncclGroupStart() { return ncclInternalError; }
ncclResult_t ncclGroupEnd() { return ncclInternalError; }
ncclResult_t ncclAllGather(const void*, void*, size_t, ncclDataType_t, ncclComm_t, cudaStream_t) {
  return ncclInternalError;
}
ncclResult_t ncclReduceScatter(
    const void*, void*, size_t, ncclDataType_t, ncclRedOp_t, ncclComm_t, cudaStream_t) {
  return ncclInternalError;
}
ncclResult_t ncclReduce(
    const void*, void*, size_t, ncclDataType_t, ncclRedOp_t, int, ncclComm_t, cudaStream_t) {
  return ncclInternalError;
}
ncclResult_t ncclBroadcast(
    const void*, void*, size_t, ncclDataType_t, int, ncclComm_t, cudaStream_t) {
  return ncclInternalError;
}
ncclResult_t ncclSend(const void*, size_t, ncclDataType_t, int, ncclComm_t, cudaStream_t) {
  return ncclInternalError;
}
ncclResult_t ncclRecv(void*, size_t, ncclDataType_t, int, ncclComm_t, cudaStream_t) {
  return ncclInternalError;
}

}  // extern "C"
