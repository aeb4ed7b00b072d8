#include "common/device/cuda/cuda_upload_stream.h"

#include "common/base/status_macros.h"

namespace tandem {

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

}  // namespace tandem
