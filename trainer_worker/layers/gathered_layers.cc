#include "trainer_worker/layers/gathered_layers.h"

#include <algorithm>
#include <utility>

#include "common/base/check.h"
#include "common/base/status.h"
#include "common/model_spec/row_ranges.h"
#include "trainer_worker/shard/shard_array.h"

namespace tandem {

absl::StatusOr<std::unique_ptr<WeightGather>> WeightGather::Create(
    Device* device,
    const ShardPlan* plan,
    WeightRows* rows,
    OrderedCommunicator* communicator,
    Ledger* ledger,
    GatherOptions options) {
  std::unique_ptr<WeightGather> gather(new WeightGather(device, plan, rows, communicator));
  options.ranks = plan->world_size();
  gather->prefetch_ = options.prefetch;
  const WeightLayout& layout = plan->layout();
  const GatherSizes sizes = GatherSizesOf({.global = layout.global_bytes(),
                                           .layer = layout.layer_bytes(),
                                           .layers = layout.num_layers()},
                                          options);
  gather->places_.resize(static_cast<size_t>(1 + sizes.layers));
  TANDEM_ASSIGN_OR_RETURN(gather->storage_, device->Reserve("gather", sizes.places, ledger));
  if (sizes.staging == 0) return gather;
  TANDEM_ASSIGN_OR_RETURN(gather->staging_, device->Reserve("gather", sizes.staging, ledger));
  return gather;
}

WeightGather::~WeightGather() { Refresh(); }

absl::Status WeightGather::Map() {
  if (in_place() || storage_->mapped()) return absl::OkStatus();
  Refresh();
  TANDEM_RETURN_IF_ERROR(storage_->Map());
  return staging_ == nullptr ? absl::OkStatus() : staging_->Map();
}

absl::Status WeightGather::Release() {
  Refresh();
  TANDEM_RETURN_IF_ERROR(LogReleaseFailure(storage_->Release()));
  return staging_ == nullptr ? absl::OkStatus() : LogReleaseFailure(staging_->Release());
}

void WeightGather::Refresh() {
  // Without an event the device has failed, which shows in all that comes.
  JoinUploads().IgnoreError();
  for (Place& place : places_) {
    if (place.filled.valid()) place.filled.wait();
    place = Place{};
  }
}

void WeightGather::Use(WeightRows* rows) {
  if (rows == rows_) return;
  Refresh();
  rows_ = rows;
  source_ = rows->stored();
}

size_t WeightGather::IndexOf(int layer) const {
  return layer < 0 ? 0 : 1 + static_cast<size_t>(layer) % (places_.size() - 1);
}

std::byte* WeightGather::Address(int layer) const {
  return storage_->data() + plan_->layout().group_offset(static_cast<int>(IndexOf(layer)) - 1);
}

absl::StatusOr<const std::byte*> WeightGather::Group(int layer) {
  const int64_t layers = plan_->layout().num_layers();
  if (layer < -1 || layer >= layers) {
    return InvalidArgument("layer {} of {} was to be gathered", layer, layers);
  }
  last_ = layer;
  if (in_place()) return source_.data + MyOffset(layer);
  Place& place = places_[IndexOf(layer)];
  if (place.layer == layer && !place.filled.valid() && !place.uploading) return Address(layer);
  if (!device_->is_host()) return GroupOnDevice(layer);
  const bool prefetched = place.layer == layer;
  const OrderedCommunicator::Result filled = std::exchange(place, Place{}).filled;
  if (!prefetched && filled.valid()) filled.wait();  // it has staging_
  TANDEM_RETURN_IF_ERROR(prefetched ? filled.get() : FillNow(layer));
  place.layer = layer;
  return Address(layer);
}

absl::Status WeightGather::FillNow(int layer) {
  if (LaysOutMade()) return LayOutMade(layer);
  TANDEM_RETURN_IF_ERROR(StageMine(layer));
  return communicator_->Run(FillOf(layer));
}

absl::StatusOr<const std::byte*> WeightGather::GroupOnDevice(int layer) {
  // One group at a time is in staging_.
  TANDEM_RETURN_IF_ERROR(LayOutPrefetched());
  TANDEM_RETURN_IF_ERROR(JoinUploads());
  Place& place = places_[IndexOf(layer)];
  if (place.layer == layer) return Address(layer);
  place = Place{};
  TANDEM_RETURN_IF_ERROR(FillNow(layer));
  if (!LaysOutMade()) TANDEM_RETURN_IF_ERROR(LayOut(layer));
  place.layer = layer;
  return Address(layer);
}

void WeightGather::Prefetch(Next next) {
  const int layer = last_ + (next == Next::kAfter ? 1 : -1);
  if (layer < 0 || layer >= plan_->layout().num_layers()) return;
  Place& place = places_[IndexOf(layer)];
  const bool waits = plan_->world_size() > 1 || source_.file != nullptr || Uploads();
  if (!prefetch_ || !waits || place.layer == layer) return;
  if (Uploads()) {
    Upload(layer).IgnoreError();  // Group tries again
    return;
  }
  if (!device_->is_host() && !LayOutPrefetched().ok()) return;  // Group fails as well
  if (!StageMine(layer).ok()) return;
  place = Place{layer, communicator_->Submit(FillOf(layer))};
}

absl::Status WeightGather::Upload(int layer) {
  if (uploads_ == nullptr) {
    TANDEM_ASSIGN_OR_RETURN(uploads_, device_->OpenUploads());
  }
  Place& place = places_[IndexOf(layer)];
  // Whatever comes of it, what lies there is no layer any more until it is joined.
  place = Place{.uploading = true};
  TANDEM_RETURN_IF_ERROR(uploads_->Begin());
  TANDEM_RETURN_IF_ERROR(LayOut(layer, uploads_.get()));
  place.layer = layer;
  return absl::OkStatus();
}

absl::Status WeightGather::JoinUploads() {
  for (Place& place : places_) {
    if (!place.uploading) continue;
    TANDEM_RETURN_IF_ERROR(uploads_->Join());
    place.uploading = false;
  }
  return absl::OkStatus();
}

int64_t WeightGather::MyOffset(int layer) const {
  const auto element = static_cast<int64_t>(DTypeBytes(plan_->layout().dtype()));
  return plan_->group_offset(layer, plan_->rank()) * element;
}

int64_t WeightGather::BytesOf(int layer, int rank) const {
  const auto element = static_cast<int64_t>(DTypeBytes(plan_->layout().dtype()));
  return plan_->group_elements(layer, rank) * element;
}

OrderedCommunicator::Work WeightGather::FillOf(int layer) {
  return [this, layer](Communicator& group) {
    return device_->is_host() ? Fill(layer, group) : Collect(layer, group);
  };
}

absl::Status WeightGather::Fill(int layer, Communicator& group) {
  const int64_t offset = MyOffset(layer), length = BytesOf(layer, plan_->rank());
  if (source_.file != nullptr) source_.file->WillNeed(offset, length);
  TANDEM_RETURN_IF_ERROR(Collect(layer, group));
  TANDEM_RETURN_IF_ERROR(LayOut(layer));
  if (source_.file != nullptr) source_.file->Evict(offset, length);
  return absl::OkStatus();
}

absl::Status WeightGather::Collect(int layer, Communicator& group) {
  if (plan_->world_size() == 1) return absl::OkStatus();
  std::vector<int64_t> bytes;
  const std::byte* mine = is_stored() ? source_.data + MyOffset(layer) : staging_->data();
  int64_t before = 0;
  for (int r = 0; r < plan_->world_size(); ++r) {
    if (r == plan_->rank() && StagesMine()) mine = staging_->data() + before;
    bytes.push_back(BytesOf(layer, r));
    before += bytes.back();
  }
  return group.AllGatherV(mine, bytes, staging_->data());
}

absl::Status WeightGather::MakeMine(int layer, std::byte* to) {
  // What was prefetched is in staging_ as long as the communication thread has it.
  for (const Place& place : places_) {
    if (place.filled.valid()) place.filled.wait();
  }
  const auto element = static_cast<int64_t>(DTypeBytes(plan_->layout().dtype()));
  const ShardPlan::Group tensors = plan_->group(layer);
  for (size_t tensor = tensors.first; tensor < tensors.last; ++tensor) {
    const ShardPlan::Piece& piece = plan_->mine(tensor);
    const int64_t offset = (piece.offset - plan_->group_offset(layer, plan_->rank())) * element;
    TANDEM_RETURN_IF_ERROR(
        rows_->CopyRows(tensor, 0, piece.rows, plan_->layout().dtype(), to + offset));
  }
  return absl::OkStatus();
}

absl::Status WeightGather::LayOutMade(int layer) {
  const DType dtype = plan_->layout().dtype();
  const ShardPlan::Group tensors = plan_->group(layer);
  for (size_t tensor = tensors.first; tensor < tensors.last; ++tensor) {
    const TensorPlace& place = *plan_->tensors()[tensor];
    if (!device_->is_host()) {
      TANDEM_RETURN_IF_ERROR(
          rows_->CopyRows(tensor, 0, place.rows(), dtype, AddressOf(layer, place, 0)));
      continue;
    }
    const int64_t row_bytes = place.cols() * static_cast<int64_t>(DTypeBytes(dtype));
    const int64_t step = RowsPerRange(row_bytes);
    made_.resize(static_cast<size_t>(std::max(kRowRangeBytes, row_bytes)));
    for (int64_t row = 0; row < place.rows(); row += step) {
      const int64_t rows = std::min(step, place.rows() - row);
      TANDEM_RETURN_IF_ERROR(rows_->CopyRows(tensor, row, rows, dtype, made_.data()));
      plan_->layout().WriteRows(Address(layer), place, row, rows, made_.data());
    }
  }
  return absl::OkStatus();
}

absl::Status WeightGather::StageMine(int layer) {
  if (!StagesMine()) return absl::OkStatus();
  std::byte* to = staging_->data();
  for (int r = 0; r < plan_->rank(); ++r) to += BytesOf(layer, r);
  if (!is_stored()) return MakeMine(layer, to);
  device_->Copy(to, source_.data + MyOffset(layer), BytesOf(layer, plan_->rank()));
  return absl::OkStatus();
}

absl::Status WeightGather::LayOutPrefetched() {
  if (device_->is_host()) return absl::OkStatus();
  for (Place& place : places_) {
    if (!place.filled.valid()) continue;
    const Place prefetched = std::exchange(place, Place{});
    TANDEM_RETURN_IF_ERROR(prefetched.filled.get());
    TANDEM_RETURN_IF_ERROR(LayOut(prefetched.layer));
    place.layer = prefetched.layer;
  }
  return absl::OkStatus();
}

absl::Status WeightGather::LayOut(int layer, UploadStream* beside) {
  const auto element = static_cast<int64_t>(DTypeBytes(plan_->layout().dtype()));
  const ShardPlan::Group tensors = plan_->group(layer);
  const std::byte* shard =
      plan_->world_size() > 1 ? staging_->data() : source_.data + MyOffset(layer);
  for (int r = 0; r < plan_->world_size(); shard += BytesOf(layer, r++)) {
    for (size_t tensor = tensors.first; tensor < tensors.last; ++tensor) {
      const ShardPlan::Piece& piece = plan_->piece(tensor, r);
      if (piece.rows == 0) continue;
      const int64_t offset = (piece.offset - plan_->group_offset(layer, r)) * element;
      TANDEM_RETURN_IF_ERROR(
          WriteRows(layer, *plan_->tensors()[tensor], piece, shard + offset, beside));
    }
  }
  return absl::OkStatus();
}

std::byte* WeightGather::AddressOf(int layer, const TensorPlace& place, int64_t row) const {
  TANDEM_CHECK(!place.packed, place.name);  // a GPU's weights are row-major
  const auto element = static_cast<int64_t>(DTypeBytes(plan_->layout().dtype()));
  return Address(layer) + place.offset + (place.fused_row + row) * place.cols() * element;
}

absl::Status WeightGather::WriteRows(int layer,
                                     const TensorPlace& place,
                                     const ShardPlan::Piece& piece,
                                     const std::byte* from,
                                     UploadStream* beside) {
  const WeightLayout& layout = plan_->layout();
  if (device_->is_host()) {
    layout.WriteRows(Address(layer), place, piece.row, piece.rows, from);
    return absl::OkStatus();
  }
  const int64_t row_bytes = place.cols() * static_cast<int64_t>(DTypeBytes(layout.dtype()));
  std::byte* const to = AddressOf(layer, place, piece.row);
  if (beside != nullptr) return beside->Copy(to, from, piece.rows * row_bytes);
  device_->Copy(to, from, piece.rows * row_bytes);
  return absl::OkStatus();
}

}  // namespace tandem
