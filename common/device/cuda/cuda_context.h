// One device of a process, the stream of its compute, and the small host arrays that kernels read.
// Shared by the ops and everything else that copies to and from the device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include "common/device/cuda/cuda_api.h"

namespace tandem {

// Not thread-safe: used by the engine thread. Methods that return no status keep the first error
// for Synchronize to return, as errors of kernels are reported late anyway. If there is too little
// device or pinned memory for scratch or uploads, that error is ResourceExhausted with the bytes
// and the keys that lower them, and nothing is launched or copied until Synchronize has returned
// it.
class CudaContext {
 public:
  // Makes `device` current on the calling thread. `api` must outlive the context.
  static absl::StatusOr<std::unique_ptr<CudaContext>> Create(CudaApi* api, int device);
  ~CudaContext();
  CudaContext(const CudaContext&) = delete;
  CudaContext& operator=(const CudaContext&) = delete;

  CudaApi& api() const { return *api_; }
  int device() const { return device_; }
  const CudaDeviceInfo& info() const { return info_; }
  CudaStream stream() const { return stream_; }

  // Waits until all work so far is done. Returns the first error since the last call.
  absl::Status Synchronize();
  // Keeps the status of a call that enqueued work and could not return it to its own caller.
  void Keep(const absl::Status& status) { status_.Update(status); }

  // All three work in stream order, on addresses in any memory. Pageable host memory that is read
  // may be reused at once; pinned memory is read in stream order, so it must stay unchanged until a
  // Synchronize. Read returns when the bytes have arrived.
  void Copy(void* to, const void* from, int64_t bytes);
  void Zero(void* to, int64_t bytes);
  void Read(void* to_host, const void* from_device, int64_t bytes);
  // Does not wait: `to_host` is written by the next successful Synchronize or Read and must live
  // until then. The bytes go through pinned memory, because a copy to pageable memory would wait
  // for the device. Not allowed within a graph.
  void ReadLater(void* to_host, const void* from_device, int64_t bytes);

  // Copies a small host array to the device and returns its address there, aligned to 256. It is
  // valid until upload_epoch() changes, which Synchronize, Read, BeginGraph and EndGraph do.
  const void* Upload(const void* host, int64_t bytes);
  template <typename T>
  const T* Upload(const std::vector<T>& host) {
    return static_cast<const T*>(
        Upload(host.data(), static_cast<int64_t>(host.size() * sizeof(T))));
  }
  int64_t upload_epoch() const { return upload_epoch_; }
  // Device memory of at least `bytes` that is valid until the next Scratch of the same slot; a slot
  // grows and never shrinks. Slots are 0 to kScratchSlots - 1; the files that use one name it.
  // Without memory (launching() is then false) returns an address that is not null and must not be
  // accessed.
  std::byte* Scratch(int slot, int64_t bytes);
  static constexpr int kScratchSlots = 16;
  // Device memory for `what`, separate from scratch but counted with it, until Free. Null if there
  // is none; Synchronize then returns the error.
  std::byte* Allocate(const char* what, int64_t bytes);
  // Like Allocate, for callers that report the error themselves.
  absl::StatusOr<std::byte*> TryAllocate(int64_t bytes);
  absl::Status Free(std::byte* address, int64_t bytes);
  // Bytes on the device of scratch, of Upload's buffers and of TryAllocate.
  int64_t held_bytes() const { return held_bytes_; }

  // Whether Synchronize has an error to return; uploaded arrays may be missing then.
  bool failed() const { return !status_.ok(); }

  // Whether kernels must be launched: false while a replay only refreshes uploaded arrays, and
  // after there was too little memory.
  bool launching() const { return mode_ != Mode::kReplay && !starved_; }

  // Whether calls run at once, instead of being captured or replayed.
  bool eager() const { return mode_ == Mode::kEager; }

  // Begins a step that is repeated with other numbers: between BeginGraph and EndGraph the calls
  // are the same every time, with arrays of the same sizes. The first step of a `key` runs
  // normally, which shows how much memory it needs; the second one is captured; from then on only
  // its Upload()s take effect, and one graph launch does the rest. Read and Synchronize must not be
  // called in between. A key that cannot be captured is logged and runs normally from then on.
  void BeginGraph(uint64_t key);
  bool in_graph() const { return open_ != nullptr; }
  // False: no part of the step ran, and the caller must make all its calls once more, without
  // BeginGraph.
  [[nodiscard]] bool EndGraph();
  // The data that the open graph's step reads has changed: EndGraph drops the graph and returns
  // false.
  void RefuseGraph();
  // Forgets all graphs, because addresses that they use have changed.
  void DropGraphs();
  // Number of known keys, at most kMaxGraphs; the least recently used one is evicted.
  int64_t graphs() const { return static_cast<int64_t>(graphs_.size()); }
  static constexpr int64_t kMaxGraphs = 64;

 private:
  enum class Mode { kEager, kCapture, kReplay };
  // Pinned host memory and its copy on the device, filled from the front.
  struct Arena {
    std::byte* host = nullptr;
    std::byte* device = nullptr;
    int64_t bytes = 0;
    int64_t used = 0;
  };
  struct LateRead {
    void* to = nullptr;
    const std::byte* pinned = nullptr;
    int64_t bytes = 0;
  };
  struct Graph {
    Arena arena;
    CudaGraph exec = nullptr;
    int64_t upload_bytes = 0;  // of the step when it ran without the graph
    int64_t last_use = 0;
  };
  using Graphs = std::map<uint64_t, Graph>;

  CudaContext(CudaApi* api, int device) : api_(api), device_(device) {}
  // Waits for the stream; errors are kept.
  void Wait();
  // Has no bytes if there is no memory.
  Arena MakeArena(int64_t bytes);
  // Stops all launches because `bytes` for `what` were refused with `status`.
  void Starve(const char* what, int64_t bytes, const absl::Status& status);
  void Free(Arena& arena);
  void EndArenas(std::vector<Arena>& arenas);
  void EndUploads();
  void EndReads(bool arrived);
  // Pinned memory until the next Synchronize; null if there is none, and its error is kept.
  std::byte* Landing(int64_t bytes);
  void ForgetGraphs();  // all but the open one
  Graphs::iterator Forget(Graphs::iterator graph);
  void MakeRoomForGraph();
  // Replay or capture of open_, if possible.
  Mode ModeOfOpenGraph();
  absl::Status Launch(Graph& graph, Mode mode);
  // Clears the errors of a failed capture, as the step runs once more without it.
  void ForgetCaptureErrors();
  // Runs steps of `key` normally from now on.
  void GiveUpGraph(uint64_t key, const absl::Status& failure);

  CudaApi* const api_;
  const int device_;
  CudaDeviceInfo info_;
  CudaStream stream_ = nullptr;
  absl::Status status_;
  bool starved_ = false;         // status_ is an error for lack of memory
  absl::Status before_capture_;  // status_ at the begin of the open capture
  std::vector<Arena> arenas_;    // of work outside graphs; the last one is being filled
  int64_t upload_epoch_ = 0;
  std::vector<std::pair<std::byte*, int64_t>> scratch_;
  int64_t held_bytes_ = 0;

  Graphs graphs_;
  std::set<uint64_t> never_captured_;  // keys whose capture failed
  int64_t graph_uses_ = 0;
  Mode mode_ = Mode::kEager;
  Graph* open_ = nullptr;  // between BeginGraph and EndGraph
  uint64_t open_key_ = 0;
  bool refused_ = false;           // whether RefuseGraph was called for the open one
  int64_t uploaded_bytes_ = 0;     // since BeginGraph
  bool graph_is_running_ = false;  // launched since the last synchronisation

  std::vector<Arena>
      landings_;  // of late reads, without device memory; the last one is being filled
  std::vector<LateRead> late_reads_;
};

}  // namespace tandem
