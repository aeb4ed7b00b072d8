#include "common/device/cuda/cuda_device.h"

#include <algorithm>

#include <fmt/format.h>

#include "common/base/check.h"
#include "common/base/status.h"
#include "common/device/cuda/cuda_regions.h"

namespace tandem {

absl::StatusOr<std::unique_ptr<OffloadStream>> CudaOffloadStream::Create(
    CudaContext* context, std::vector<Array> arrays, std::vector<Window> windows, Ledger* ledger) {
  std::unique_ptr<CudaOffloadStream> stream(
      new CudaOffloadStream(context, std::move(arrays), std::move(windows)));
  TANDEM_RETURN_IF_ERROR(stream->Begin(ledger));
  return stream;
}

absl::Status CudaOffloadStream::Begin(Ledger* ledger) {
  if (arrays_.empty() || windows_.empty()) return absl::OkStatus();
  TANDEM_RETURN_IF_ERROR(Prepare(ledger));
  for (size_t window = 0; window < std::min<size_t>(2, windows_.size()); ++window) {
    TANDEM_RETURN_IF_ERROR(CopyIn(window));
  }
  return absl::OkStatus();
}

absl::Status CudaOffloadStream::Prepare(Ledger* ledger) {
  CudaApi& api = context_->api();
  int64_t largest = 1;
  for (const Window& window : windows_) largest = std::max(largest, window.bytes);
  for (const Array& array : arrays_) {
    for (int i = 0; i < 2; ++i) {
      TANDEM_ASSIGN_OR_RETURN(auto buffer,
                              CudaRegion::Reserve(context_, array.tag, largest, ledger));
      TANDEM_RETURN_IF_ERROR(buffer->Map());
      buffers_.push_back(std::move(buffer));
    }
  }
  TANDEM_ASSIGN_OR_RETURN(in_, api.CreateStream());
  TANDEM_ASSIGN_OR_RETURN(out_, api.CreateStream());
  for (Half& half : halves_) {
    TANDEM_ASSIGN_OR_RETURN(half.filled, api.CreateMark());
    TANDEM_ASSIGN_OR_RETURN(half.worked, api.CreateMark());
    TANDEM_ASSIGN_OR_RETURN(half.emptied, api.CreateMark());
    // The first windows wait for the zeros that Map writes.
    TANDEM_RETURN_IF_ERROR(api.Record(half.emptied, context_->stream()));
  }
  return absl::OkStatus();
}

CudaOffloadStream::~CudaOffloadStream() {
  CudaApi& api = context_->api();
  for (const CudaStream stream : {in_, out_}) {
    if (stream == nullptr) continue;
    api.Synchronize(stream).IgnoreError();
    api.DestroyStream(stream).IgnoreError();
  }
  for (const Half& half : halves_) {
    for (const CudaEvent event : {half.filled, half.worked, half.emptied}) {
      if (event != nullptr) api.DestroyEvent(event).IgnoreError();
    }
  }
}

std::byte* CudaOffloadStream::Buffer(size_t array, size_t window) const {
  return buffers_[2 * array + window % 2]->data();
}

absl::Status CudaOffloadStream::CopyIn(size_t window) {
  CudaApi& api = context_->api();
  const Half& half = halves_[window % 2];
  const auto [offset, bytes] = windows_[window];
  TANDEM_RETURN_IF_ERROR(api.WaitEvent(in_, half.emptied));
  for (size_t array = 0; array < arrays_.size(); ++array) {
    TANDEM_RETURN_IF_ERROR(
        api.Copy(Buffer(array, window), arrays_[array].home + offset, bytes, in_));
  }
  return api.Record(half.filled, in_);
}

absl::StatusOr<std::vector<std::byte*>> CudaOffloadStream::Open(size_t window) {
  TANDEM_CHECK(window == opened_ && window < closed_ + 2, "a window is opened out of order");
  ++opened_;
  std::vector<std::byte*> places;
  if (arrays_.empty()) return places;
  TANDEM_RETURN_IF_ERROR(context_->api().WaitEvent(context_->stream(), halves_[window % 2].filled));
  for (size_t array = 0; array < arrays_.size(); ++array) places.push_back(Buffer(array, window));
  return places;
}

absl::Status CudaOffloadStream::Close(size_t window) {
  TANDEM_CHECK(window == closed_ && window < opened_, "a window is closed out of order");
  ++closed_;
  if (arrays_.empty()) return absl::OkStatus();
  CudaApi& api = context_->api();
  const Half& half = halves_[window % 2];
  const auto [offset, bytes] = windows_[window];
  TANDEM_RETURN_IF_ERROR(api.Record(half.worked, context_->stream()));
  TANDEM_RETURN_IF_ERROR(api.WaitEvent(out_, half.worked));
  for (size_t array = 0; array < arrays_.size(); ++array) {
    TANDEM_RETURN_IF_ERROR(
        api.Copy(arrays_[array].home + offset, Buffer(array, window), bytes, out_));
  }
  TANDEM_RETURN_IF_ERROR(api.Record(half.emptied, out_));
  return window + 2 < windows_.size() ? CopyIn(window + 2) : absl::OkStatus();
}

absl::Status CudaOffloadStream::Finish() {
  return out_ == nullptr ? absl::OkStatus() : context_->api().Synchronize(out_);
}

absl::StatusOr<std::unique_ptr<UploadStream>> CudaUploadStream::Create(CudaContext* context) {
  std::unique_ptr<CudaUploadStream> uploads(new CudaUploadStream(context));
  TANDEM_RETURN_IF_ERROR(uploads->Prepare());
  return uploads;
}

absl::Status CudaUploadStream::Prepare() {
  CudaApi& api = context_->api();
  TANDEM_ASSIGN_OR_RETURN(stream_, api.CreateStream());
  TANDEM_ASSIGN_OR_RETURN(begun_, api.CreateEvent(false));
  TANDEM_ASSIGN_OR_RETURN(copied_, api.CreateEvent(false));
  return absl::OkStatus();
}

CudaUploadStream::~CudaUploadStream() {
  CudaApi& api = context_->api();
  if (stream_ != nullptr) {
    api.Synchronize(stream_).IgnoreError();
    api.DestroyStream(stream_).IgnoreError();
  }
  for (const CudaEvent event : {begun_, copied_}) {
    if (event != nullptr) api.DestroyEvent(event).IgnoreError();
  }
}

absl::Status CudaUploadStream::Begin() {
  TANDEM_RETURN_IF_ERROR(context_->api().Record(begun_, context_->stream()));
  return context_->api().WaitEvent(stream_, begun_);
}

absl::Status CudaUploadStream::Copy(void* to, const void* from, int64_t bytes) {
  if (bytes == 0) return absl::OkStatus();
  return context_->api().Copy(to, from, bytes, stream_);
}

absl::Status CudaUploadStream::Join() {
  TANDEM_RETURN_IF_ERROR(context_->api().Record(copied_, stream_));
  return context_->api().WaitEvent(context_->stream(), copied_);
}

std::string CudaDevice::name() const {
  const CudaDeviceInfo& info = context_->info();
  return fmt::format("{} ({}, {:.0f} GiB)", info.name, info.uuid,
                     static_cast<double>(info.total_bytes) / (1 << 30));
}

DriverMemory CudaDevice::Memory() const {
  CudaApi& api = context_->api();
  // The driver answers for the current device of a thread, and any thread may ask.
  if (!api.UseDevice(context_->device()).ok()) return {};
  const absl::StatusOr<int64_t> free = api.FreeBytes();
  return free.ok() ? DriverMemory{context_->info().total_bytes, *free} : DriverMemory();
}

absl::Status CudaDevice::UseOnThisThread() { return context_->api().UseDevice(context_->device()); }

absl::StatusOr<std::unique_ptr<MemoryRegion>> CudaDevice::Reserve(const std::string& tag,
                                                                  int64_t bytes,
                                                                  Ledger* ledger) {
  return CudaRegion::Reserve(context_.get(), tag, bytes, ledger);
}

absl::StatusOr<std::unique_ptr<MemoryRegion>> CudaDevice::ReserveHost(const std::string& tag,
                                                                      int64_t bytes,
                                                                      Ledger* ledger) {
  return PinnedRegion::Reserve(context_.get(), tag, bytes, ledger);
}

absl::StatusOr<std::unique_ptr<OffloadStream>> CudaDevice::StreamThrough(
    std::vector<OffloadStream::Array> arrays,
    std::vector<OffloadStream::Window> windows,
    Ledger* ledger) {
  return CudaOffloadStream::Create(context_.get(), std::move(arrays), std::move(windows), ledger);
}

absl::StatusOr<std::unique_ptr<UploadStream>> CudaDevice::OpenUploads() {
  return CudaUploadStream::Create(context_.get());
}

void CudaDevice::Copy(void* to, const void* from, int64_t bytes) {
  context_->Copy(to, from, bytes);
}

void CudaDevice::Zero(void* to, int64_t bytes) { context_->Zero(to, bytes); }

}  // namespace tandem
