#include "trainer_worker/layers/layer_source.h"

#include <algorithm>
#include <utility>

#include "common/base/check.h"
#include "common/base/progress.h"
#include "common/base/status.h"
#include "common/model_spec/row_ranges.h"
#include "trainer_worker/shard/shard_array.h"

namespace tandem {

absl::StatusOr<std::unique_ptr<LayerBuffers>> LayerBuffers::Create(Device* device,
                                                                   const ShardPlan* plan,
                                                                   Ledger* ledger,
                                                                   GatherOptions options) {
  std::unique_ptr<LayerBuffers> buffers(new LayerBuffers(plan));
  options.ranks = plan->world_size();
  buffers->prefetch_ = options.prefetch;
  const WeightLayout& layout = plan->layout();
  const GatherSizes sizes = GatherSizesOf({.global = layout.global_bytes(),
                                           .layer = layout.layer_bytes(),
                                           .layers = layout.num_layers()},
                                          options);
  buffers->slots_.resize(static_cast<size_t>(1 + sizes.layers));
  TANDEM_ASSIGN_OR_RETURN(buffers->storage_, device->Reserve("gather", sizes.places, ledger));
  if (sizes.staging == 0) return buffers;
  TANDEM_ASSIGN_OR_RETURN(buffers->staging_, device->Reserve("gather", sizes.staging, ledger));
  return buffers;
}

absl::Status LayerBuffers::MapFor(LayerSource* owner) {
  if (owner_ != owner && owner_ != nullptr) owner_->Invalidate();
  owner_ = owner;
  TANDEM_RETURN_IF_ERROR(storage_->Map());
  return staging_ == nullptr ? absl::OkStatus() : staging_->Map();
}

absl::Status LayerBuffers::Release() {
  if (owner_ != nullptr) owner_->Invalidate();
  TANDEM_RETURN_IF_ERROR(LogReleaseFailure(storage_->Release()));
  return staging_ == nullptr ? absl::OkStatus() : LogReleaseFailure(staging_->Release());
}

std::byte* LayerBuffers::Address(int layer) const {
  return storage_->data() + plan_->layout().group_offset(static_cast<int>(IndexOf(layer)) - 1);
}

namespace {

int64_t ElementBytes(const ShardPlan& plan) {
  return static_cast<int64_t>(DTypeBytes(plan.layout().dtype()));
}
// The offset of this rank's part of a group in its shard, in bytes, and the bytes of a rank's part.
int64_t GroupOffset(const ShardPlan& plan, int layer) {
  return plan.group_offset(layer, plan.rank()) * ElementBytes(plan);
}
int64_t GroupBytes(const ShardPlan& plan, int layer, int rank) {
  return plan.group_elements(layer, rank) * ElementBytes(plan);
}

absl::Status CheckLayer(const ShardPlan& plan, int layer) {
  const int64_t layers = plan.layout().num_layers();
  if (layer >= -1 && layer < layers) return absl::OkStatus();
  return InvalidArgument("layer {} of {} was to be gathered", layer, layers);
}

// Writes rows to a group, in the layout that the ops read.
class LayerWriter {
 public:
  virtual ~LayerWriter() = default;
  // Copies dense rows. On a device the copy is complete when the work enqueued so far is done.
  virtual absl::Status Write(std::byte* group,
                             const TensorPlace& place,
                             int64_t row,
                             int64_t rows,
                             const std::byte* from) = 0;
};

// Packs rows for the host's ops.
class HostWriter final : public LayerWriter {
 public:
  explicit HostWriter(const WeightLayout* layout) : layout_(layout) {}
  absl::Status Write(std::byte* group,
                     const TensorPlace& place,
                     int64_t row,
                     int64_t rows,
                     const std::byte* from) override {
    layout_->WriteRows(group, place, row, rows, from);
    return absl::OkStatus();
  }

 private:
  const WeightLayout* const layout_;
};

// The address of a row in a GPU's group, whose weights are row-major.
std::byte* RowAddress(const WeightLayout& layout,
                      std::byte* group,
                      const TensorPlace& place,
                      int64_t row) {
  TANDEM_CHECK(!place.packed, place.name);
  const auto element = static_cast<int64_t>(DTypeBytes(layout.dtype()));
  return group + place.offset + (place.fused_row + row) * place.cols() * element;
}
int64_t RowBytes(const WeightLayout& layout, const TensorPlace& place) {
  return place.cols() * static_cast<int64_t>(DTypeBytes(layout.dtype()));
}

// Copies in the order of the device's work.
class DeviceWriter final : public LayerWriter {
 public:
  DeviceWriter(const WeightLayout* layout, Device* device) : layout_(layout), device_(device) {}
  absl::Status Write(std::byte* group,
                     const TensorPlace& place,
                     int64_t row,
                     int64_t rows,
                     const std::byte* from) override {
    device_->Copy(RowAddress(*layout_, group, place, row), from, rows * RowBytes(*layout_, place));
    return absl::OkStatus();
  }

 private:
  const WeightLayout* const layout_;
  Device* const device_;
};

std::unique_ptr<LayerWriter> MakeWriter(const WeightLayout* layout, Device* device) {
  if (device->is_host()) return std::make_unique<HostWriter>(layout);
  return std::make_unique<DeviceWriter>(layout, device);
}

// Copies from host memory while the device computes.
class UploadWriter final : public LayerWriter {
 public:
  UploadWriter(const WeightLayout* layout, UploadStream* stream)
      : layout_(layout), stream_(stream) {}
  absl::Status Write(std::byte* group,
                     const TensorPlace& place,
                     int64_t row,
                     int64_t rows,
                     const std::byte* from) override {
    return stream_->Copy(RowAddress(*layout_, group, place, row), from,
                         rows * RowBytes(*layout_, place));
  }

 private:
  const WeightLayout* const layout_;
  UploadStream* const stream_;
};

// A GPU's shard that is not offloaded and already has the layout of its groups (ShardPlan): nothing
// is copied.
class ResidentLayers final : public LayerSource {
 public:
  explicit ResidentLayers(WeightRows* rows) : rows_(rows) {}
  absl::Status Map() override { return absl::OkStatus(); }
  void Invalidate() override {}
  absl::StatusOr<const std::byte*> Layer(int layer) override {
    TANDEM_RETURN_IF_ERROR(CheckLayer(rows_->plan(), layer));
    return rows_->stored().data + GroupOffset(rows_->plan(), layer);
  }
  void Prefetch(int /*layer*/) override {}

 private:
  WeightRows* const rows_;
};

// Layers in the session's LayerBuffers.
class BufferedLayers : public LayerSource {
 public:
  absl::Status Map() override {
    TANDEM_RETURN_IF_ERROR(buffers_->MapFor(this));
    stored_ = rows_->stored();
    return absl::OkStatus();
  }
  void Invalidate() override {
    if (!buffers_->is_owned_by(this)) return;
    const OutsideWait wait;  // the communication thread is watched itself
    for (LayerBuffers::Slot& slot : buffers_->slots()) {
      if (slot.filled.valid()) slot.filled.wait();
      slot = {};
    }
  }

 protected:
  BufferedLayers(WeightRows* rows, LayerBuffers* buffers)
      : rows_(rows),
        plan_(rows->plan()),
        stored_(rows->stored()),
        is_stored_(stored_.data != nullptr),
        buffers_(buffers),
        writer_(MakeWriter(&plan_.layout(), rows->device())) {}
  ~BufferedLayers() override {
    BufferedLayers::Invalidate();
    buffers_->Disown(this);
  }
  LayerBuffers::Slot& slot(int layer) { return buffers_->slot(layer); }
  bool MayPrefetch(int layer) {
    return buffers_->prefetches() && layer >= 0 && layer < plan_.layout().num_layers() &&
           slot(layer).layer != layer;
  }
  // Lays a group out from the ranks' shards of it, which are one after another.
  absl::Status LayOut(int layer, const std::byte* shards, LayerWriter& writer) {
    const ShardPlan::Group tensors = plan_.group(layer);
    for (int r = 0; r < plan_.world_size(); shards += GroupBytes(plan_, layer, r++)) {
      for (size_t tensor = tensors.first; tensor < tensors.last; ++tensor) {
        const ShardPlan::Piece& piece = plan_.piece(tensor, r);
        if (piece.rows == 0) continue;
        const int64_t offset = (piece.offset - plan_.group_offset(layer, r)) * ElementBytes(plan_);
        TANDEM_RETURN_IF_ERROR(writer.Write(buffers_->Address(layer), *plan_.tensors()[tensor],
                                            piece.row, piece.rows, shards + offset));
      }
    }
    return absl::OkStatus();
  }

  WeightRows* const rows_;
  const ShardPlan& plan_;
  StoredShard stored_;  // where the rows are stored, as of the last Map
  const bool is_stored_;
  LayerBuffers* const buffers_;
  const std::unique_ptr<LayerWriter> writer_;  // copies in the order of the device's work
};

// Layers that a single rank lays out from its own rows, which are stored or computed by LoRA.
class BuiltLayers : public BufferedLayers {
 public:
  absl::StatusOr<const std::byte*> Layer(int layer) override {
    TANDEM_RETURN_IF_ERROR(CheckLayer(plan_, layer));
    if (slot(layer).layer != layer) {
      slot(layer) = {};
      TANDEM_RETURN_IF_ERROR(is_stored_
                                 ? LayOut(layer, stored_.data + GroupOffset(plan_, layer), *writer_)
                                 : ComputeLayer(layer));
      slot(layer).layer = layer;
    }
    return buffers_->Address(layer);
  }
  // Does nothing: the engine thread, which computes the layers, also lays out the rows.
  void Prefetch(int /*layer*/) override {}

 protected:
  BuiltLayers(WeightRows* rows, LayerBuffers* buffers) : BufferedLayers(rows, buffers) {}

 private:
  // Writes all computed rows of a tensor to its group.
  virtual absl::Status ComputeTensor(std::byte* group, size_t tensor, const TensorPlace& place) = 0;

  absl::Status ComputeLayer(int layer) {
    const ShardPlan::Group tensors = plan_.group(layer);
    for (size_t tensor = tensors.first; tensor < tensors.last; ++tensor) {
      TANDEM_RETURN_IF_ERROR(
          ComputeTensor(buffers_->Address(layer), tensor, *plan_.tensors()[tensor]));
    }
    return absl::OkStatus();
  }
};

// On a CPU, whose ops read packed rows.
class HostBuiltLayers final : public BuiltLayers {
 public:
  HostBuiltLayers(WeightRows* rows, LayerBuffers* buffers) : BuiltLayers(rows, buffers) {}

 private:
  absl::Status ComputeTensor(std::byte* group, size_t tensor, const TensorPlace& place) override {
    const int64_t row_bytes = RowBytes(plan_.layout(), place);
    const int64_t step = RowsPerRange(row_bytes);
    range_.resize(static_cast<size_t>(std::max(kRowRangeBytes, row_bytes)));
    for (int64_t row = 0; row < place.rows(); row += step) {
      const int64_t rows = std::min(step, place.rows() - row);
      TANDEM_RETURN_IF_ERROR(
          rows_->CopyRows(tensor, row, rows, plan_.layout().dtype(), range_.data()));
      TANDEM_RETURN_IF_ERROR(writer_->Write(group, place, row, rows, range_.data()));
    }
    return absl::OkStatus();
  }

  // Computed rows of one tensor, before they are packed.
  std::vector<std::byte> range_;
};

// On a GPU, whose groups hold rows as they are computed.
class DeviceBuiltLayers final : public BuiltLayers {
 public:
  DeviceBuiltLayers(WeightRows* rows, LayerBuffers* buffers) : BuiltLayers(rows, buffers) {}

 private:
  absl::Status ComputeTensor(std::byte* group, size_t tensor, const TensorPlace& place) override {
    const WeightLayout& layout = plan_.layout();
    return rows_->CopyRows(tensor, 0, place.rows(), layout.dtype(),
                           RowAddress(layout, group, place, 0));
  }
};

// Layers of a single rank on a GPU, whose shard is offloaded to host memory. They are uploaded on a
// separate stream, each while the one before it computes.
class UploadedLayers final : public BufferedLayers {
 public:
  UploadedLayers(WeightRows* rows, LayerBuffers* buffers) : BufferedLayers(rows, buffers) {}
  ~UploadedLayers() override { JoinUploads().IgnoreError(); }

  void Invalidate() override {
    // An error means that the device has failed; every later call reports it.
    JoinUploads().IgnoreError();
    BufferedLayers::Invalidate();
  }
  absl::StatusOr<const std::byte*> Layer(int layer) override {
    TANDEM_RETURN_IF_ERROR(CheckLayer(plan_, layer));
    if (slot(layer).layer == layer && !slot(layer).uploading) return buffers_->Address(layer);
    TANDEM_RETURN_IF_ERROR(JoinUploads());
    if (slot(layer).layer != layer) {
      slot(layer) = {};
      TANDEM_RETURN_IF_ERROR(LayOut(layer, Shard(layer), *writer_));
      slot(layer).layer = layer;
    }
    return buffers_->Address(layer);
  }
  void Prefetch(int layer) override {
    if (MayPrefetch(layer)) Upload(layer).IgnoreError();  // on an error, Layer tries again
  }

 private:
  const std::byte* Shard(int layer) const { return stored_.data + GroupOffset(plan_, layer); }
  absl::Status Upload(int layer) {
    if (stream_ == nullptr) {
      TANDEM_ASSIGN_OR_RETURN(stream_, rows_->device()->OpenUploads());
    }
    // The slot holds no layer until its copies have been joined, even after an error.
    slot(layer) = {.uploading = true};
    TANDEM_RETURN_IF_ERROR(stream_->Begin());
    UploadWriter writer(&plan_.layout(), stream_.get());
    TANDEM_RETURN_IF_ERROR(LayOut(layer, Shard(layer), writer));
    slot(layer).layer = layer;
    return absl::OkStatus();
  }
  // Makes work that is enqueued from now on wait for the uploads in progress.
  absl::Status JoinUploads() {
    if (!buffers_->is_owned_by(this)) return absl::OkStatus();
    for (LayerBuffers::Slot& slot : buffers_->slots()) {
      if (!slot.uploading) continue;
      TANDEM_RETURN_IF_ERROR(stream_->Join());
      slot.uploading = false;
    }
    return absl::OkStatus();
  }

  std::unique_ptr<UploadStream> stream_;  // opened for the first prefetched layer
};

// Layers that the communication thread gathers from the ranks' shards, or reads from the file to
// which a single rank's shard is offloaded.
class GatheredLayers : public BufferedLayers {
 protected:
  // `stages_own_rows`: this rank's part of a group is copied or computed into the staging memory
  // before it is gathered.
  GatheredLayers(WeightRows* rows,
                 LayerBuffers* buffers,
                 OrderedCommunicator* communicator,
                 bool stages_own_rows)
      : BufferedLayers(rows, buffers),
        communicator_(communicator),
        stages_own_rows_(stages_own_rows) {}

  absl::Status StageOwnRows(int layer) {
    if (!stages_own_rows_) return absl::OkStatus();
    std::byte* to = buffers_->staging();
    for (int r = 0; r < plan_.rank(); ++r) to += GroupBytes(plan_, layer, r);
    if (!is_stored_) return ComputeOwnRows(layer, to);
    rows_->device()->Copy(to, stored_.data + GroupOffset(plan_, layer),
                          GroupBytes(plan_, layer, plan_.rank()));
    return absl::OkStatus();
  }

  // Runs on the communication thread: gathers the ranks' shards of a group into the staging memory.
  absl::Status Collect(int layer, Communicator& group) {
    if (plan_.world_size() == 1) return absl::OkStatus();
    std::vector<int64_t> bytes;
    const std::byte* mine = is_stored_ ? stored_.data + GroupOffset(plan_, layer) : nullptr;
    int64_t before = 0;
    for (int r = 0; r < plan_.world_size(); ++r) {
      if (r == plan_.rank() && stages_own_rows_) mine = buffers_->staging() + before;
      bytes.push_back(GroupBytes(plan_, layer, r));
      before += bytes.back();
    }
    return group.AllGatherV(mine, bytes, buffers_->staging());
  }

  OrderedCommunicator* const communicator_;

 private:
  absl::Status ComputeOwnRows(int layer, std::byte* to) {
    // Waits for prefetched layers, as the communication thread uses the staging memory for them.
    {
      const OutsideWait wait;
      for (const LayerBuffers::Slot& slot : buffers_->slots()) {
        if (slot.filled.valid()) slot.filled.wait();
      }
    }
    const ShardPlan::Group tensors = plan_.group(layer);
    for (size_t tensor = tensors.first; tensor < tensors.last; ++tensor) {
      const ShardPlan::Piece& piece = plan_.mine(tensor);
      const int64_t offset =
          (piece.offset - plan_.group_offset(layer, plan_.rank())) * ElementBytes(plan_);
      TANDEM_RETURN_IF_ERROR(
          rows_->CopyRows(tensor, 0, piece.rows, plan_.layout().dtype(), to + offset));
    }
    return absl::OkStatus();
  }

  const bool stages_own_rows_;
};

// Gathered layers of a CPU worker: the communication thread gathers a group and lays it out.
class HostGatheredLayers final : public GatheredLayers {
 public:
  HostGatheredLayers(WeightRows* rows, LayerBuffers* buffers, OrderedCommunicator* communicator)
      : GatheredLayers(rows, buffers, communicator, rows->stored().data == nullptr) {}
  ~HostGatheredLayers() override { Invalidate(); }

  absl::StatusOr<const std::byte*> Layer(int layer) override {
    TANDEM_RETURN_IF_ERROR(CheckLayer(plan_, layer));
    LayerBuffers::Slot& place = slot(layer);
    if (place.layer == layer && !place.filled.valid()) return buffers_->Address(layer);
    const bool prefetched = place.layer == layer;
    const OrderedCommunicator::Result filled = std::exchange(place, {}).filled;
    if (filled.valid()) {  // also a fill of another layer, as it uses the staging memory
      const OutsideWait wait;
      filled.wait();
    }
    TANDEM_RETURN_IF_ERROR(prefetched ? filled.get() : FillNow(layer));
    place.layer = layer;
    return buffers_->Address(layer);
  }
  void Prefetch(int layer) override {
    if (!MayPrefetch(layer) || !StageOwnRows(layer).ok()) return;
    slot(layer) = {layer, communicator_->Submit(Work(layer))};
  }

 private:
  absl::Status FillNow(int layer) {
    TANDEM_RETURN_IF_ERROR(StageOwnRows(layer));
    return communicator_->Run(Work(layer));
  }
  OrderedCommunicator::Work Work(int layer) {
    return [this, layer](Communicator& group) { return Fill(layer, group); };
  }
  absl::Status Fill(int layer, Communicator& group) {
    const int64_t offset = GroupOffset(plan_, layer);
    const int64_t length = GroupBytes(plan_, layer, plan_.rank());
    if (stored_.file != nullptr) stored_.file->WillNeed(offset, length);
    TANDEM_RETURN_IF_ERROR(Collect(layer, group));
    const bool alone = plan_.world_size() == 1;
    TANDEM_RETURN_IF_ERROR(
        LayOut(layer, alone ? stored_.data + offset : buffers_->staging(), *writer_));
    if (stored_.file != nullptr) stored_.file->Evict(offset, length);
    return absl::OkStatus();
  }
};

// Gathered layers of a GPU worker: the communication thread only gathers the ranks' shards; the
// engine thread lays them out, in the order of its device's work. The staging memory holds one
// group at a time.
class DeviceGatheredLayers final : public GatheredLayers {
 public:
  // A collective reads device memory, so an offloaded shard has to be copied there first.
  DeviceGatheredLayers(WeightRows* rows, LayerBuffers* buffers, OrderedCommunicator* communicator)
      : GatheredLayers(rows,
                       buffers,
                       communicator,
                       rows->stored().data == nullptr || rows->stored().offloaded) {}
  ~DeviceGatheredLayers() override { Invalidate(); }

  absl::StatusOr<const std::byte*> Layer(int layer) override {
    TANDEM_RETURN_IF_ERROR(CheckLayer(plan_, layer));
    LayerBuffers::Slot& place = slot(layer);
    if (place.layer == layer && !place.filled.valid()) return buffers_->Address(layer);
    TANDEM_RETURN_IF_ERROR(LayOutPrefetched());
    if (place.layer == layer) return buffers_->Address(layer);
    place = {};
    TANDEM_RETURN_IF_ERROR(StageOwnRows(layer));
    TANDEM_RETURN_IF_ERROR(communicator_->Run(Work(layer)));
    TANDEM_RETURN_IF_ERROR(LayOut(layer, buffers_->staging(), *writer_));
    place.layer = layer;
    return buffers_->Address(layer);
  }
  void Prefetch(int layer) override {
    if (!MayPrefetch(layer) || !LayOutPrefetched().ok()) return;  // on an error, Layer fails too
    if (!StageOwnRows(layer).ok()) return;
    slot(layer) = {layer, communicator_->Submit(Work(layer))};
  }

 private:
  OrderedCommunicator::Work Work(int layer) {
    return [this, layer](Communicator& group) { return Collect(layer, group); };
  }
  absl::Status LayOutPrefetched() {
    for (LayerBuffers::Slot& slot : buffers_->slots()) {
      if (!slot.filled.valid()) continue;
      const LayerBuffers::Slot prefetched = std::exchange(slot, {});
      TANDEM_RETURN_IF_ERROR(prefetched.filled.get());
      TANDEM_RETURN_IF_ERROR(LayOut(prefetched.layer, buffers_->staging(), *writer_));
      slot.layer = prefetched.layer;
    }
    return absl::OkStatus();
  }
};

}  // namespace

std::unique_ptr<LayerSource> MakeLayerSource(WeightRows* rows,
                                             LayerBuffers* buffers,
                                             OrderedCommunicator* communicator) {
  const StoredShard stored = rows->stored();
  const bool alone = rows->plan().world_size() == 1;
  if (rows->device()->is_host()) {
    if (alone && stored.file == nullptr) return std::make_unique<HostBuiltLayers>(rows, buffers);
    return std::make_unique<HostGatheredLayers>(rows, buffers, communicator);
  }
  if (stored.data != nullptr && !stored.offloaded && rows->plan().is_laid_out()) {
    return std::make_unique<ResidentLayers>(rows);
  }
  if (!alone) return std::make_unique<DeviceGatheredLayers>(rows, buffers, communicator);
  if (stored.offloaded) return std::make_unique<UploadedLayers>(rows, buffers);
  return std::make_unique<DeviceBuiltLayers>(rows, buffers);
}

}  // namespace tandem
