#include <cstring>

#include <nccl.h>

#include "common/base/status.h"
#include "common/comm/cuda/nccl_api.h"
#include "common/device/cuda/library_search.h"

namespace tandem {
namespace {

static_assert(sizeof(NcclId) == sizeof(ncclUniqueId));

// The NCCL functions that are called, typed by NCCL's header. They are looked up at run time; the
// library is not linked.
struct Functions {
  decltype(&ncclGetVersion) get_version;
  decltype(&ncclGetErrorString) error_string;
  decltype(&ncclGetUniqueId) unique_id;
  decltype(&ncclCommInitRankConfig) init;
  decltype(&ncclCommGetAsyncError) async_error;
  decltype(&ncclCommFinalize) finalize;
  decltype(&ncclCommDestroy) destroy;
  decltype(&ncclCommAbort) abort;
  decltype(&ncclGroupStart) group_start;
  decltype(&ncclGroupEnd) group_end;
  decltype(&ncclAllGather) all_gather;
  decltype(&ncclReduceScatter) reduce_scatter;
  decltype(&ncclReduce) reduce;
  decltype(&ncclBroadcast) broadcast;
  decltype(&ncclSend) send;
  decltype(&ncclRecv) receive;
};

template <typename Function>
absl::Status Find(void* library, const char* name, Function* function) {
  TANDEM_ASSIGN_OR_RETURN(void* const found, FindFunction(library, name));
  *function = reinterpret_cast<Function>(found);
  return absl::OkStatus();
}

absl::StatusOr<Functions> FindAll(void* library) {
  Functions f{};
  TANDEM_RETURN_IF_ERROR(Find(library, "ncclGetVersion", &f.get_version));
  TANDEM_RETURN_IF_ERROR(Find(library, "ncclGetErrorString", &f.error_string));
  TANDEM_RETURN_IF_ERROR(Find(library, "ncclGetUniqueId", &f.unique_id));
  TANDEM_RETURN_IF_ERROR(Find(library, "ncclCommInitRankConfig", &f.init));
  TANDEM_RETURN_IF_ERROR(Find(library, "ncclCommGetAsyncError", &f.async_error));
  TANDEM_RETURN_IF_ERROR(Find(library, "ncclCommFinalize", &f.finalize));
  TANDEM_RETURN_IF_ERROR(Find(library, "ncclCommDestroy", &f.destroy));
  TANDEM_RETURN_IF_ERROR(Find(library, "ncclCommAbort", &f.abort));
  TANDEM_RETURN_IF_ERROR(Find(library, "ncclGroupStart", &f.group_start));
  TANDEM_RETURN_IF_ERROR(Find(library, "ncclGroupEnd", &f.group_end));
  TANDEM_RETURN_IF_ERROR(Find(library, "ncclAllGather", &f.all_gather));
  TANDEM_RETURN_IF_ERROR(Find(library, "ncclReduceScatter", &f.reduce_scatter));
  TANDEM_RETURN_IF_ERROR(Find(library, "ncclReduce", &f.reduce));
  TANDEM_RETURN_IF_ERROR(Find(library, "ncclBroadcast", &f.broadcast));
  TANDEM_RETURN_IF_ERROR(Find(library, "ncclSend", &f.send));
  TANDEM_RETURN_IF_ERROR(Find(library, "ncclRecv", &f.receive));
  return f;
}

class NcclLibrary final : public NcclApi {
 public:
  NcclLibrary(const Functions& functions, int version) : nccl_(functions), version_(version) {}

  int version() const override { return version_; }
  absl::StatusOr<NcclId> NewId() override {
    NcclId id;
    TANDEM_RETURN_IF_ERROR(
        StatusOf(nccl_.unique_id(reinterpret_cast<ncclUniqueId*>(id.bytes.data())), "a new id"));
    return id;
  }
  absl::StatusOr<NcclComm> Join(const NcclMember& member) override;
  absl::StatusOr<bool> Ready(NcclComm comm) override {
    ncclResult_t state = ncclSuccess;
    TANDEM_RETURN_IF_ERROR(StatusOf(nccl_.async_error(comm, &state), "ncclCommGetAsyncError"));
    if (state == ncclInProgress) return false;
    TANDEM_RETURN_IF_ERROR(StatusOf(state, "a collective"));
    return true;
  }

  absl::Status AllGather(
      const void* mine, void* all, int64_t bytes, NcclComm comm, CudaStream stream) override {
    return StatusOf(nccl_.all_gather(mine, all, Size(bytes), ncclInt8, comm, stream),
                    "ncclAllGather");
  }
  absl::Status Broadcast(
      void* data, int64_t bytes, int root, NcclComm comm, CudaStream stream) override {
    return StatusOf(nccl_.broadcast(data, data, Size(bytes), ncclInt8, root, comm, stream),
                    "ncclBroadcast");
  }
  absl::Status Reduce(const std::vector<NcclSum>& sums, NcclComm comm, CudaStream stream) override {
    return InGroup("ncclReduceScatter and ncclReduce", [&] {
      ncclResult_t worst = ncclSuccess;
      for (const NcclSum& sum : sums) worst = Worse(worst, SumOne(nccl_, sum, comm, stream));
      return worst;
    });
  }
  absl::Status Transfer(const std::vector<NcclTransfer>& transfers,
                        NcclComm comm,
                        CudaStream stream) override {
    return InGroup("ncclSend and ncclRecv", [&] {
      ncclResult_t worst = ncclSuccess;
      for (const NcclTransfer& part : transfers) {
        const auto call = part.way == NcclTransfer::Way::kSend ? SendOne : ReceiveOne;
        worst = Worse(worst, call(nccl_, part, comm, stream));
      }
      return worst;
    });
  }

  absl::Status Finalize(NcclComm comm) override {
    return StatusOf(nccl_.finalize(comm), "ncclCommFinalize");
  }
  absl::Status Destroy(NcclComm comm) override {
    return StatusOf(nccl_.destroy(comm), "ncclCommDestroy");
  }
  absl::Status Abort(NcclComm comm) override {
    return StatusOf(nccl_.abort(comm), "ncclCommAbort");
  }

 private:
  static size_t Size(int64_t count) { return static_cast<size_t>(count); }
  static ncclResult_t Worse(ncclResult_t one, ncclResult_t other) {
    return one == ncclSuccess || one == ncclInProgress ? other : one;
  }
  static ncclResult_t SumOne(const Functions& nccl,
                             const NcclSum& sum,
                             NcclComm comm,
                             CudaStream stream) {
    if (sum.root == NcclSum::kEveryRank) {
      return nccl.reduce_scatter(sum.from, sum.to, Size(sum.count), ncclFloat32, ncclSum, comm,
                                 stream);
    }
    return nccl.reduce(sum.from, sum.to, Size(sum.count), ncclFloat32, ncclSum, sum.root, comm,
                       stream);
  }
  static ncclResult_t SendOne(const Functions& nccl,
                              const NcclTransfer& part,
                              NcclComm comm,
                              CudaStream stream) {
    return nccl.send(part.data, Size(part.bytes), ncclInt8, part.peer, comm, stream);
  }
  static ncclResult_t ReceiveOne(const Functions& nccl,
                                 const NcclTransfer& part,
                                 NcclComm comm,
                                 CudaStream stream) {
    return nccl.receive(part.data, Size(part.bytes), ncclInt8, part.peer, comm, stream);
  }
  // ncclGroupEnd is called after a failure too: groups nest per thread, and one left open would
  // hold back later calls.
  template <typename Calls>
  absl::Status InGroup(const char* what, const Calls& calls) {
    TANDEM_RETURN_IF_ERROR(StatusOf(nccl_.group_start(), "ncclGroupStart"));
    const ncclResult_t inside = calls();
    const ncclResult_t end = nccl_.group_end();
    return StatusOf(Worse(inside, end), what);
  }
  // ncclInProgress is not an error: Ready reports how the call ended.
  absl::Status StatusOf(ncclResult_t result, const char* what) const {
    if (result == ncclSuccess || result == ncclInProgress) return absl::OkStatus();
    const auto code =
        result == ncclRemoteError ? absl::StatusCode::kUnavailable : absl::StatusCode::kInternal;
    return MakeStatus(code, "NCCL: {}: {} (NCCL_DEBUG=INFO logs more)", what,
                      nccl_.error_string(result));
  }

  const Functions nccl_;
  const int version_;
};

absl::StatusOr<NcclComm> NcclLibrary::Join(const NcclMember& member) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  if (member.single_channel) config.minCTAs = config.maxCTAs = 1;
  ncclUniqueId id;
  std::memcpy(&id, member.id.bytes.data(), sizeof(id));
  NcclComm comm = nullptr;
  const absl::Status joined = StatusOf(
      nccl_.init(&comm, member.world_size, id, member.rank, &config), "ncclCommInitRankConfig");
  if (joined.ok()) return comm;
  // The caller gets no communicator that it could abort.
  if (comm != nullptr) (void)nccl_.abort(comm);
  return joined;
}

}  // namespace

absl::StatusOr<std::unique_ptr<NcclApi>> OpenNccl() {
  TANDEM_RETURN_IF_ERROR(CheckNcclSumsPinned());
  TANDEM_ASSIGN_OR_RETURN(void* const library, OpenLibrary("libnccl.so.2", "nvidia/nccl/lib"));
  TANDEM_ASSIGN_OR_RETURN(const Functions functions, FindAll(library));
  int version = 0;
  functions.get_version(&version);
  // 2.18 is the first version that can be used without blocking here: earlier ones write the
  // communicator from another thread to the address that ncclCommInitRankConfig was given, which is
  // a local variable of Join.
  if (version < NCCL_VERSION(2, 18, 0)) {
    return FailedPrecondition("NCCL {} is too old: 2.18 is needed", version);
  }
  return std::make_unique<NcclLibrary>(functions, version);
}

}  // namespace tandem
