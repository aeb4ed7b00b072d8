#include "common/comm/cuda/collective_stream.h"

#include "common/base/status.h"

namespace tandem {

absl::StatusOr<std::unique_ptr<CollectiveStream>> CollectiveStream::Create(CudaApi* api,
                                                                           int device,
                                                                           CudaStream compute) {
  std::unique_ptr<CollectiveStream> made(new CollectiveStream(api, device, compute));
  TANDEM_RETURN_IF_ERROR(api->UseDevice(device));
  TANDEM_ASSIGN_OR_RETURN(made->stream_, api->CreateStream(StreamPriority::kHighest));
  for (CudaEvent* const event : {&made->begin_, &made->reached_, &made->finished_}) {
    TANDEM_ASSIGN_OR_RETURN(*event, api->CreateMark());
  }
  for (CudaEvent& mark : made->marks_) {
    TANDEM_ASSIGN_OR_RETURN(mark, api->CreateMark());
  }
  return made;
}

CollectiveStream::~CollectiveStream() {
  (void)api_->UseDevice(device_);
  for (const CudaEvent event : {begin_, reached_, finished_}) {
    if (event != nullptr) (void)api_->DestroyEvent(event);
  }
  for (const CudaEvent mark : marks_) {
    if (mark != nullptr) (void)api_->DestroyEvent(mark);
  }
  if (stream_ != nullptr) (void)api_->DestroyStream(stream_);
}

uint64_t CollectiveStream::Mark() {
  // Returns 0 on failure: the collective then waits for the whole compute stream and reports the
  // error itself.
  const uint64_t mark = next_mark_++;
  return api_->Record(marks_[mark % kMarks], compute_).ok() ? mark : 0;
}

absl::Status CollectiveStream::Begin() {
  TANDEM_RETURN_IF_ERROR(api_->UseDevice(device_));
  if (start_ == 0) TANDEM_RETURN_IF_ERROR(api_->Record(begin_, compute_));
  TANDEM_RETURN_IF_ERROR(api_->WaitEvent(stream_, start_ == 0 ? begin_ : marks_[start_ % kMarks]));
  return api_->Record(reached_, stream_);
}

absl::Status CollectiveStream::End() { return api_->Record(finished_, stream_); }

}  // namespace tandem
