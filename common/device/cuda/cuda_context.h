// One device of a process and the stream that its compute goes through, with the small host arrays
// that kernels read. Shared by the ops and whoever copies to and from the device.
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

// Not thread-safe: the engine thread's. Methods that give no status keep the first error, which
// Synchronize returns: a kernel's error shows late as well. Where device or pinned memory is short
// for scratch or uploads, that is ResourceExhausted, which names the bytes and the keys; nothing is
// launched or copied from then on until Synchronize has returned it.
class CudaContext {
 public:
  // Makes `device` the calling thread's. `api` must outlive the context.
  static absl::StatusOr<std::unique_ptr<CudaContext>> Create(CudaApi* api, int device);
  ~CudaContext();
  CudaContext(const CudaContext&) = delete;
  CudaContext& operator=(const CudaContext&) = delete;

  CudaApi& api() const { return *api_; }
  int device() const { return device_; }
  const CudaDeviceInfo& info() const { return info_; }
  CudaStream stream() const { return stream_; }

  // Waits until all work so far is done. The first error since the last call.
  absl::Status Synchronize();
  // The status of a call that put work on the stream and could not give it to its own caller.
  void Keep(const absl::Status& status) { status_.Update(status); }

  // In stream order, whichever memory the addresses are in. Host memory that is read may be reused
  // at once if it is pageable; pinned memory is read in stream order too, and holds until a
  // Synchronize. The bytes of a Read are there when it returns.
  void Copy(void* to, const void* from, int64_t bytes);
  void Zero(void* to, int64_t bytes);
  void Read(void* to_host, const void* from_device, int64_t bytes);
  // Does not wait: `to_host` is written by the next Synchronize or Read, if that succeeds, and has
  // to last until then. It comes through pinned memory, as a copy to other memory of the host waits
  // for the device. Not within a graph.
  void ReadLater(void* to_host, const void* from_device, int64_t bytes);

  // A copy on the device of a small array of the host's, aligned to 256; it is valid until
  // upload_epoch() changes, which Synchronize, Read, BeginGraph and EndGraph change.
  const void* Upload(const void* host, int64_t bytes);
  template <typename T>
  const T* Upload(const std::vector<T>& host) {
    return static_cast<const T*>(
        Upload(host.data(), static_cast<int64_t>(host.size() * sizeof(T))));
  }
  int64_t upload_epoch() const { return upload_epoch_; }
  // Device memory of at least `bytes` that holds until the next Scratch of the same slot; grows,
  // never shrinks. Slots are 0 to kScratchSlots - 1, and whoever uses one names it. Where there is
  // no memory (launching() is false then), an address that is not null and not to be used.
  std::byte* Scratch(int slot, int64_t bytes);
  static constexpr int kScratchSlots = 16;
  // Device memory for `what` that is kept apart from scratch but counts with it, until Free.
  // Null where there is none.
  std::byte* Allocate(const char* what, int64_t bytes);
  // The same, for who has an error of its own to give.
  absl::StatusOr<std::byte*> TryAllocate(int64_t bytes);
  absl::Status Free(std::byte* address, int64_t bytes);
  // Bytes on the device of scratch, of Upload's buffers and of TryAllocate.
  int64_t held_bytes() const { return held_bytes_; }

  // Whether Synchronize has an error to return: uploaded arrays may not be there.
  bool failed() const { return !status_.ok(); }

  // Whether kernels are to be launched: false while a replay only refreshes uploaded arrays, and
  // where there was too little memory for the kernels.
  bool launching() const { return mode_ != Mode::kReplay && !starved_; }

  // Whether calls are carried out now, and neither captured nor replayed.
  bool eager() const { return mode_ == Mode::kEager; }

  // A step that is done again and again with other numbers: the calls between Begin and End are
  // the same every time, with arrays of the same sizes. For a new `key` they are done as always,
  // which shows how much memory they need; the second time they are captured; from then on only
  // their Upload()s count, and one graph does the rest. Read and Synchronize may not be called in
  // between. A key that cannot be captured is said in the log and done as always from then on.
  void BeginGraph(uint64_t key);
  bool in_graph() const { return open_ != nullptr; }
  // False: nothing of the step was done, and all its calls have to be made once more, without
  // BeginGraph.
  [[nodiscard]] bool EndGraph();
  // What the open graph's step reads has changed: EndGraph drops the graph and gives false.
  void RefuseGraph();
  // Forgets all graphs: addresses they use have changed.
  void DropGraphs();
  // Keys that are known, at most kMaxGraphs: the one that was used longest ago makes room.
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
    int64_t upload_bytes = 0;  // of the step that was done without it
    int64_t last_use = 0;
  };
  using Graphs = std::map<uint64_t, Graph>;

  CudaContext(CudaApi* api, int device) : api_(api), device_(device) {}
  // Waits; errors are kept.
  void Wait();
  // Of no bytes where there is no memory.
  Arena MakeArena(int64_t bytes);
  // Nothing goes on without `bytes` for `what`, which `status` refused.
  void Starve(const char* what, int64_t bytes, const absl::Status& status);
  void Free(Arena& arena);
  void EndArenas(std::vector<Arena>& arenas);
  void EndUploads();
  void EndReads(bool arrived);
  // Pinned memory until the next Synchronize; null where there is none, whose status is kept.
  std::byte* Landing(int64_t bytes);
  void ForgetGraphs();  // but for the open one
  Graphs::iterator Forget(Graphs::iterator graph);
  void MakeRoomForGraph();
  // Replay or capture if it can be, of open_.
  Mode ModeOfOpenGraph();
  absl::Status Launch(Graph& graph, Mode mode);
  // What calls of a capture that failed have left: the step is done once more without it.
  void ForgetCaptureErrors();
  // From now on steps of `key` are done as always.
  void GiveUpGraph(uint64_t key, const absl::Status& failure);

  CudaApi* const api_;
  const int device_;
  CudaDeviceInfo info_;
  CudaStream stream_ = nullptr;
  absl::Status status_;
  bool starved_ = false;         // status_ tells of memory that was short
  absl::Status before_capture_;  // status_ where the open capture began
  std::vector<Arena> arenas_;    // of work that is no graph's; the last one is being filled
  int64_t upload_epoch_ = 0;
  std::vector<std::pair<std::byte*, int64_t>> scratch_;
  int64_t held_bytes_ = 0;

  Graphs graphs_;
  std::set<uint64_t> never_captured_;  // keys for which it failed
  int64_t graph_uses_ = 0;
  Mode mode_ = Mode::kEager;
  Graph* open_ = nullptr;  // between BeginGraph and EndGraph
  uint64_t open_key_ = 0;
  bool refused_ = false;           // the open one
  int64_t uploaded_bytes_ = 0;     // since BeginGraph
  bool graph_is_running_ = false;  // since the last synchronisation

  std::vector<Arena> landings_;  // of late reads, without device memory; the last is being filled
  std::vector<LateRead> late_reads_;
};

}  // namespace tandem
