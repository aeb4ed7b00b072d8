#include "trainer_worker/shard/offload_windows.h"

#include <algorithm>
#include <cstring>

#include "common/base/status.h"
#include "common/device/device.h"
#include "common/process/cores.h"
#include "trainer_worker/shard/shard_plan.h"

namespace tandem {

std::vector<ShardWindow> CutWindows(int64_t elements, int64_t window) {
  std::vector<ShardWindow> windows;
  for (int64_t first = 0; first < elements; first += window) {
    windows.push_back({first, std::min(window, elements - first)});
  }
  return windows;
}

absl::StatusOr<std::unique_ptr<OffloadWindows>> OffloadWindows::Create(
    std::vector<Array> arrays, std::vector<ShardWindow> windows, Ledger* ledger) {
  std::unique_ptr<OffloadWindows> stream(new OffloadWindows(std::move(arrays), std::move(windows)));
  int64_t largest = 1;
  for (const ShardWindow& window : stream->windows_) largest = std::max(largest, window.count);
  for (const Array& array : stream->arrays_) {
    for (int i = 0; i < 2; ++i) {
      TANDEM_ASSIGN_OR_RETURN(auto buffer,
                              HostDevice()->Reserve(array.tag, largest * kFloat32Bytes, ledger));
      TANDEM_RETURN_IF_ERROR(buffer->Map());
      stream->buffers_.push_back(std::move(buffer));
    }
  }
  if (stream->arrays_.empty()) return stream;
  stream->thread_ = NamedThread("offload", [raw = stream.get()] { raw->Loop(); });
  for (size_t window = 0; window < std::min<size_t>(2, stream->windows_.size()); ++window) {
    stream->Submit(window, [raw = stream.get(), window] { raw->Read(window); });
  }
  return stream;
}

OffloadWindows::~OffloadWindows() {
  queue_.Close();  // queued transfers are completed first
  thread_.Join();
  // Evicts the pages that the system mapped around the windows' ends.
  for (const Array& array : arrays_) array.home->Evict(0, array.home->bytes());
}

void OffloadWindows::Loop() {
  // The caller may be pinned to a core, on which it computes during transfers.
  UnpinThisThread();
  while (auto transfer = queue_.Pop()) (*transfer)();
}

void OffloadWindows::Submit(size_t window, std::function<void()> transfer) {
  std::packaged_task<void()> task(std::move(transfer));
  transfers_[window % 2] = task.get_future();
  queue_.Push(std::move(task));
}

std::byte* OffloadWindows::Buffer(size_t array, size_t window) const {
  return buffers_[2 * array + window % 2]->data();
}

void OffloadWindows::Read(size_t window) const {
  const ShardWindow& range = windows_[window];
  for (size_t array = 0; array < arrays_.size(); ++array) {
    FileRegion& home = *arrays_[array].home;
    std::memcpy(Buffer(array, window), home.data() + range.first * kFloat32Bytes,
                static_cast<size_t>(range.count * kFloat32Bytes));
    home.Evict(range.first * kFloat32Bytes, range.count * kFloat32Bytes);
  }
}

void OffloadWindows::WriteBack(size_t window) const {
  const ShardWindow& range = windows_[window];
  for (size_t array = 0; array < arrays_.size(); ++array) {
    FileRegion& home = *arrays_[array].home;
    std::memcpy(home.data() + range.first * kFloat32Bytes, Buffer(array, window),
                static_cast<size_t>(range.count * kFloat32Bytes));
    home.Evict(range.first * kFloat32Bytes, range.count * kFloat32Bytes);
  }
}

absl::StatusOr<std::vector<std::byte*>> OffloadWindows::Open(size_t window) {
  std::vector<std::byte*> elements;
  if (arrays_.empty()) return elements;
  transfers_[window % 2].wait();
  for (size_t array = 0; array < arrays_.size(); ++array) {
    elements.push_back(Buffer(array, window));
  }
  return elements;
}

absl::Status OffloadWindows::Close(size_t window) {
  if (arrays_.empty()) return absl::OkStatus();
  Submit(window, [this, window] {
    WriteBack(window);
    if (window + 2 < windows_.size()) Read(window + 2);
  });
  return absl::OkStatus();
}

absl::Status OffloadWindows::Finish() {
  for (const std::future<void>& transfer : transfers_) {
    if (transfer.valid()) transfer.wait();
  }
  return absl::OkStatus();
}

}  // namespace tandem
