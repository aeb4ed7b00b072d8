#include "common/device/cuda/cuda_context.h"

#include <algorithm>
#include <cstring>

#include "common/base/check.h"
#include "common/base/log.h"
#include "common/base/numeric.h"
#include "common/base/status.h"
#include "common/memory/cuda_scratch.h"

namespace tandem {
namespace {

constexpr int64_t kLandingBytes = int64_t{64} << 10;

// The address that callers get when there is no memory: they compute with it before they check
// launching(), which null would not allow.
std::byte* Nowhere() {
  alignas(kUploadAlignment) static std::byte nowhere[kUploadAlignment];
  return nowhere;
}

}  // namespace

absl::StatusOr<std::unique_ptr<CudaContext>> CudaContext::Create(CudaApi* api, int device) {
  std::unique_ptr<CudaContext> context(new CudaContext(api, device));
  TANDEM_RETURN_IF_ERROR(api->UseDevice(device));
  TANDEM_ASSIGN_OR_RETURN(context->info_, api->Describe(device));
  TANDEM_ASSIGN_OR_RETURN(context->stream_, api->CreateStream());
  context->scratch_.resize(kScratchSlots);
  return context;
}

CudaContext::~CudaContext() {
  late_reads_.clear();  // their targets may be gone
  Synchronize().IgnoreError();
  DropGraphs();
  for (Arena& arena : arenas_) Free(arena);
  for (Arena& landing : landings_) Free(landing);
  for (const auto& [address, bytes] : scratch_) {
    if (address != nullptr) api_->Free(address).IgnoreError();
  }
  if (stream_ != nullptr) api_->DestroyStream(stream_).IgnoreError();
}

void CudaContext::Wait() {
  TANDEM_CHECK(open_ == nullptr, "a step that is to be a graph cannot wait for the device");
  Keep(api_->Synchronize(stream_));
  Keep(api_->LastError());
  EndUploads();
  EndReads(!failed());
  graph_is_running_ = false;
}

absl::Status CudaContext::Synchronize() {
  Wait();
  starved_ = false;
  return std::exchange(status_, absl::OkStatus());
}

void CudaContext::Starve(const char* what, int64_t bytes, const absl::Status& status) {
  starved_ = true;
  if (!absl::IsResourceExhausted(status)) return Keep(Annotate(status, what));
  Keep(MakeStatus(
      status.code(),
      "no memory for {} ({} bytes): {}; lower rollout.gpu_memory_utilization, or what a step "
      "takes: rollout.max_num_seqs of a rollout, actor.ppo_max_token_len_per_gpu of a trainer",
      what, bytes, std::string(status.message())));
}

void CudaContext::Copy(void* to, const void* from, int64_t bytes) {
  if (bytes > 0 && launching()) Keep(api_->Copy(to, from, bytes, stream_));
}

void CudaContext::Zero(void* to, int64_t bytes) {
  if (bytes > 0 && launching()) Keep(api_->Fill(to, 0, bytes, stream_));
}

void CudaContext::Read(void* to_host, const void* from_device, int64_t bytes) {
  Copy(to_host, from_device, bytes);
  Wait();
}

void CudaContext::ReadLater(void* to_host, const void* from_device, int64_t bytes) {
  TANDEM_CHECK(open_ == nullptr, "a step that is to be a graph cannot read to the host");
  if (bytes <= 0) return;
  std::byte* const pinned = Landing(bytes);
  if (pinned == nullptr) return;
  Copy(pinned, from_device, bytes);
  late_reads_.push_back({to_host, pinned, bytes});
}

std::byte* CudaContext::Landing(int64_t bytes) {
  const int64_t room = RoundUp(bytes, kUploadAlignment);
  if (landings_.empty() || landings_.back().bytes - landings_.back().used < room) {
    const int64_t last = landings_.empty() ? kLandingBytes / 2 : landings_.back().bytes;
    const int64_t fresh = std::max(2 * last, RoundUp(room, kLandingBytes));
    const absl::StatusOr<std::byte*> host = api_->AllocateHost(fresh);
    if (!host.ok()) {
      Keep(Annotate(host.status(), "pinned memory for results of the device"));
      return nullptr;
    }
    landings_.push_back({.host = *host, .bytes = fresh});
  }
  Arena& landing = landings_.back();
  landing.used += room;
  return landing.host + landing.used - room;
}

void CudaContext::EndReads(bool arrived) {
  for (const LateRead& read : late_reads_) {
    if (arrived) std::memcpy(read.to, read.pinned, static_cast<size_t>(read.bytes));
  }
  late_reads_.clear();
  EndArenas(landings_);
}

CudaContext::Arena CudaContext::MakeArena(int64_t bytes) {
  const absl::StatusOr<std::byte*> host = api_->AllocateHost(bytes);
  const absl::StatusOr<std::byte*> device =
      host.ok() ? TryAllocate(bytes) : absl::StatusOr<std::byte*>(host.status());
  if (!device.ok()) {
    if (host.ok()) Keep(api_->FreeHost(*host));
    Starve("the small arrays that kernels read", bytes, device.status());
    return {};
  }
  return {*host, *device, bytes, 0};
}

void CudaContext::Free(Arena& arena) {
  if (arena.bytes == 0) return;
  Keep(api_->FreeHost(arena.host));
  if (arena.device != nullptr) Keep(Free(arena.device, arena.bytes));
  arena = Arena();
}

void CudaContext::EndUploads() {
  ++upload_epoch_;
  EndArenas(arenas_);
}

void CudaContext::EndArenas(std::vector<Arena>& arenas) {
  // The last arena is the largest.
  while (arenas.size() > 1) {
    Free(arenas.front());
    arenas.erase(arenas.begin());
  }
  if (!arenas.empty()) arenas.back().used = 0;
}

const void* CudaContext::Upload(const void* host, int64_t bytes) {
  const int64_t room = RoundUp(std::max<int64_t>(bytes, 1), kUploadAlignment);
  uploaded_bytes_ += room;
  Arena* arena = nullptr;
  if (mode_ != Mode::kEager) {
    arena = &open_->arena;
    TANDEM_CHECK(arena->bytes - arena->used >= room,
                 "a step that is a graph uploads more than when it was recorded");
  } else {
    if (arenas_.empty() || arenas_.back().bytes - arenas_.back().used < room) {
      if (starved_) return Nowhere();
      const int64_t last = arenas_.empty() ? kUploadArenaBytes / 2 : arenas_.back().bytes;
      Arena larger = MakeArena(std::max(2 * last, RoundUp(room, kUploadArenaBytes)));
      if (larger.bytes == 0) return Nowhere();
      arenas_.push_back(larger);
    }
    arena = &arenas_.back();
  }
  std::byte* const on_device = arena->device + arena->used;
  if (bytes > 0) {
    std::memcpy(arena->host + arena->used, host, static_cast<size_t>(bytes));
    // The arena of a graph is copied as a whole before the graph is launched.
    if (mode_ == Mode::kEager) {
      Keep(api_->Copy(on_device, arena->host + arena->used, bytes, stream_));
    }
  }
  arena->used += room;
  return on_device;
}

std::byte* CudaContext::Scratch(int slot, int64_t bytes) {
  auto& [address, held] = scratch_[static_cast<size_t>(slot)];
  if (held >= bytes) return address;
  if (starved_) return Nowhere();
  TANDEM_CHECK(mode_ == Mode::kEager, "a step that is a graph needs more scratch than before");
  // The old memory may still be in use, also by graphs.
  Keep(api_->Synchronize(stream_));
  ForgetGraphs();
  if (address != nullptr) {
    Keep(Free(std::exchange(address, nullptr), std::exchange(held, 0)));
  }
  const int64_t wanted = ScratchHeld(bytes);
  address = Allocate("the kernels' scratch", wanted);
  if (address == nullptr) return Nowhere();
  held = wanted;
  return address;
}

std::byte* CudaContext::Allocate(const char* what, int64_t bytes) {
  const absl::StatusOr<std::byte*> memory = TryAllocate(bytes);
  if (memory.ok()) return *memory;
  Starve(what, bytes, memory.status());
  return nullptr;
}

absl::StatusOr<std::byte*> CudaContext::TryAllocate(int64_t bytes) {
  TANDEM_ASSIGN_OR_RETURN(std::byte* const address, api_->Malloc(bytes));
  held_bytes_ += bytes;
  return address;
}

absl::Status CudaContext::Free(std::byte* address, int64_t bytes) {
  held_bytes_ -= bytes;
  return api_->Free(address);
}

void CudaContext::BeginGraph(uint64_t key) {
  TANDEM_CHECK(open_ == nullptr, "a graph begins inside another");
  if (graph_is_running_) Wait();  // its arena is being read
  ++upload_epoch_;
  if (!graphs_.contains(key)) MakeRoomForGraph();
  const auto [found, is_new] = graphs_.try_emplace(key);
  open_ = &found->second;
  open_->last_use = ++graph_uses_;
  open_key_ = key;
  refused_ = false;
  uploaded_bytes_ = 0;
  if (is_new || starved_ || never_captured_.contains(key)) return;
  mode_ = ModeOfOpenGraph();
}

CudaContext::Mode CudaContext::ModeOfOpenGraph() {
  open_->arena.used = 0;
  if (open_->exec != nullptr) return Mode::kReplay;
  if (open_->arena.bytes == 0) {
    open_->arena = MakeArena(std::max<int64_t>(open_->upload_bytes, kUploadAlignment));
    if (starved_) return Mode::kEager;
  }
  const absl::Status begun = api_->BeginCapture(stream_);
  if (begun.ok()) {
    before_capture_ = status_;
    return Mode::kCapture;
  }
  GiveUpGraph(open_key_, begun);
  return Mode::kEager;
}

bool CudaContext::EndGraph() {
  TANDEM_CHECK(open_ != nullptr, "a graph ends that has not begun");
  Graph& graph = *std::exchange(open_, nullptr);
  ++upload_epoch_;
  const Mode mode = std::exchange(mode_, Mode::kEager);
  if (mode == Mode::kEager) {
    // Where memory was short, nothing of it was done: the next time is the first again.
    graph.upload_bytes = uploaded_bytes_;
    if (starved_) ForgetGraphs();
    return true;
  }
  const absl::Status launched = Launch(graph, mode);
  if (launched.ok() && !refused_) {
    graph_is_running_ = true;
    return true;
  }
  // A key that was refused is captured again later.
  if (!launched.ok()) GiveUpGraph(open_key_, launched);
  if (!launched.ok() && mode == Mode::kCapture) ForgetCaptureErrors();
  Keep(api_->Synchronize(stream_));  // its arena may be on its way
  Forget(graphs_.find(open_key_));
  return false;
}

absl::Status CudaContext::Launch(Graph& graph, Mode mode) {
  if (mode == Mode::kCapture) {
    TANDEM_ASSIGN_OR_RETURN(graph.exec, api_->EndCapture(stream_));
  }
  if (refused_) return absl::OkStatus();
  if (graph.arena.used > 0) {
    TANDEM_RETURN_IF_ERROR(
        api_->Copy(graph.arena.device, graph.arena.host, graph.arena.used, stream_));
  }
  return api_->LaunchGraph(graph.exec, stream_);
}

void CudaContext::RefuseGraph() {
  TANDEM_CHECK(mode_ != Mode::kEager, "a graph is refused that is neither captured nor replayed");
  refused_ = true;
}

void CudaContext::GiveUpGraph(uint64_t key, const absl::Status& failure) {
  if (IsDeviceLost(failure)) Keep(failure);
  if (never_captured_.empty()) {
    LogWarn(
        "a step cannot be a CUDA graph and is launched kernel by kernel, which is slower; further "
        "such steps are not logged: {}",
        std::string(failure.message()));
  }
  never_captured_.insert(key);
}

void CudaContext::ForgetCaptureErrors() {
  const absl::Status kept = std::exchange(status_, before_capture_);
  for (const absl::Status& error : {kept, api_->LastError()}) {
    if (IsDeviceLost(error)) Keep(error);
  }
}

void CudaContext::MakeRoomForGraph() {
  if (graphs() < kMaxGraphs) return;
  const auto by_use = [](const auto& a, const auto& b) {
    return a.second.last_use < b.second.last_use;
  };
  Forget(std::min_element(graphs_.begin(), graphs_.end(), by_use));
}

CudaContext::Graphs::iterator CudaContext::Forget(Graphs::iterator graph) {
  if (graph->second.exec != nullptr) Keep(api_->DestroyGraph(graph->second.exec));
  Free(graph->second.arena);
  return graphs_.erase(graph);
}

void CudaContext::DropGraphs() {
  TANDEM_CHECK(open_ == nullptr, "graphs are dropped while one is open");
  if (graph_is_running_) Keep(api_->Synchronize(stream_));
  ForgetGraphs();
  graph_is_running_ = false;
}

void CudaContext::ForgetGraphs() {
  for (auto graph = graphs_.begin(); graph != graphs_.end();) {
    if (&graph->second == open_) {
      ++graph;
    } else {
      graph = Forget(graph);
    }
  }
}

}  // namespace tandem
