// A backend on a GuardedDevice: the host's ops, which get the memory opened for their calls alone,
// over row-major weights, as a GPU's are. All bits are the host's.
#pragma once

#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "common/backend/backend.h"
#include "common/base/check.h"
#include "common/base/status.h"
#include "common/ops/cpu/packed_weight.h"
#include "parity/op_watch.h"
#include "tests/fakes/guarded_device.h"

namespace tandem::testing {

// The panels that the host's ops read, of a row-major weight and its adapters.
class Panels {
 public:
  Panels(const LinearWeight& dense, DType dtype) : dtype_(dtype), weight_(dense) {
    weight_.values = Pack(dense.values, dense.rows, dense.cols);
    LinearAdapter& adapter = weight_.adapter;
    if (adapter.parts == 0) return;
    adapter.a = Pack(adapter.a, adapter.parts * adapter.rank, dense.cols);
    adapter.b = Pack(adapter.b, dense.rows, adapter.rank);
  }
  const LinearWeight& weight() const { return weight_; }

 private:
  static constexpr size_t kAlignment = 64;
  const std::byte* Pack(const std::byte* dense, int64_t rows, int64_t cols) {
    std::vector<std::byte>& bytes =
        bytes_.emplace_back(static_cast<size_t>(PackedBytes(rows, cols, dtype_)) + kAlignment);
    const auto at = reinterpret_cast<uintptr_t>(bytes.data());
    std::byte* const panels = bytes.data() + (kAlignment - at % kAlignment) % kAlignment;
    PackRows(panels, cols, dtype_, 0, rows, dense);
    return panels;
  }
  const DType dtype_;
  std::vector<std::vector<std::byte>> bytes_;
  LinearWeight weight_;
};

class GuardedForwardOps final : public ForwardOpsDecorator {
 public:
  GuardedForwardOps(GuardedDevice* device, std::unique_ptr<ForwardOps> inner)
      : ForwardOpsDecorator(std::move(inner)), device_(device) {}

  WeightFormat weight_format() const override { return WeightFormat::kRowMajor; }

  void Embed(const int32_t* ids, const LinearWeight& table, Matrix out) override {
    const GuardedDevice::Access access(device_);
    ForwardOpsDecorator::Embed(ids, PanelsOf(table).weight(), out);
  }
  void TakeRows(Matrix in, const int32_t* rows, Matrix out) override {
    const GuardedDevice::Access access(device_);
    ForwardOpsDecorator::TakeRows(in, rows, out);
  }
  void RmsNorm(Matrix in, const void* weight, float eps, Matrix out) override {
    const GuardedDevice::Access access(device_);
    ForwardOpsDecorator::RmsNorm(in, weight, eps, out);
  }
  void Linear(Matrix in, const LinearWeight& weight, Matrix out) override {
    const GuardedDevice::Access access(device_);
    ForwardOpsDecorator::Linear(in, PanelsOf(weight).weight(), out);
  }
  void Add(Matrix x, Matrix delta) override {
    const GuardedDevice::Access access(device_);
    ForwardOpsDecorator::Add(x, delta);
  }
  void RopeAndStore(Matrix qkv,
                    const AttentionShape& shape,
                    const RopeTable& rope,
                    const std::vector<AttentionSpan>& spans,
                    KvLayer kv) override {
    const GuardedDevice::Access access(device_);
    ForwardOpsDecorator::RopeAndStore(qkv, shape, rope, spans, kv);
  }
  void CopyBlocks(const AttentionShape& shape,
                  const std::vector<BlockCopy>& copies,
                  KvLayer kv) override {
    const GuardedDevice::Access access(device_);
    ForwardOpsDecorator::CopyBlocks(shape, copies, kv);
  }
  void Attention(Matrix qkv,
                 const AttentionShape& shape,
                 const std::vector<AttentionSpan>& spans,
                 KvLayer kv,
                 Matrix out) override {
    const GuardedDevice::Access access(device_);
    ForwardOpsDecorator::Attention(qkv, shape, spans, kv, out);
  }
  void SiluMul(Matrix gate_up, Matrix out) override {
    const GuardedDevice::Access access(device_);
    ForwardOpsDecorator::SiluMul(gate_up, out);
  }
  void TokenLogProbs(Matrix hidden,
                     const LinearWeight& head,
                     int64_t vocab_limit,
                     const int32_t* targets,
                     const float* temperatures,
                     float* log_probs,
                     RowStats* stats) override {
    const GuardedDevice::Access access(device_);
    ForwardOpsDecorator::TokenLogProbs(hidden, PanelsOf(head).weight(), vocab_limit, targets,
                                       temperatures, log_probs, stats);
  }

 private:
  Panels PanelsOf(const LinearWeight& dense) const { return {dense, compute_dtype()}; }
  GuardedDevice* const device_;
};

class GuardedBackwardOps final : public BackwardOps {
 public:
  GuardedBackwardOps(GuardedDevice* device, DType dtype, std::unique_ptr<BackwardOps> inner)
      : device_(device), dtype_(dtype), inner_(std::move(inner)) {}

  int64_t workspace_bytes() const override { return inner_->workspace_bytes(); }
  void Round(FloatMatrix in, Matrix out) override {
    const GuardedDevice::Access access(device_);
    inner_->Round(in, out);
  }
  void AddRows(FloatMatrix in, const int32_t* rows, FloatMatrix out) override {
    const GuardedDevice::Access access(device_);
    inner_->AddRows(in, rows, out);
  }
  void LinearInput(Matrix dout, const LinearWeight& weight, Matrix din) override {
    const GuardedDevice::Access access(device_);
    inner_->LinearInput(dout, Panels(weight, dtype_).weight(), din);
  }
  void AdapterWeights(Matrix dout,
                      Matrix in,
                      const LinearWeight& weight,
                      const LinearAdapterGradients& gradients) override {
    const GuardedDevice::Access access(device_);
    inner_->AdapterWeights(dout, in, Panels(weight, dtype_).weight(), gradients);
  }
  void LinearWeights(Matrix dout, Matrix in, float* dweight, float* dbias) override {
    const GuardedDevice::Access access(device_);
    inner_->LinearWeights(dout, in, dweight, dbias);
  }
  void RmsNorm(Matrix in,
               const void* weight,
               float eps,
               Matrix dout,
               FloatMatrix dresidual,
               float* dweight) override {
    const GuardedDevice::Access access(device_);
    inner_->RmsNorm(in, weight, eps, dout, dresidual, dweight);
  }
  void HeadRmsNorms(Matrix in,
                    const AttentionShape& shape,
                    const HeadNorms& norms,
                    Matrix dout,
                    Matrix din) override {
    const GuardedDevice::Access access(device_);
    inner_->HeadRmsNorms(in, shape, norms, dout, din);
  }
  void Attention(Matrix qkv,
                 const AttentionShape& shape,
                 const std::vector<AttentionSpan>& spans,
                 Matrix out,
                 Matrix dout,
                 Matrix dqkv) override {
    const GuardedDevice::Access access(device_);
    inner_->Attention(qkv, shape, spans, out, dout, dqkv);
  }
  void Rope(Matrix dqkv,
            const AttentionShape& shape,
            const RopeTable& rope,
            const std::vector<AttentionSpan>& spans) override {
    const GuardedDevice::Access access(device_);
    inner_->Rope(dqkv, shape, rope, spans);
  }
  void SiluMul(Matrix gate_up, Matrix dout, Matrix dgate_up) override {
    const GuardedDevice::Access access(device_);
    inner_->SiluMul(gate_up, dout, dgate_up);
  }
  void TokenLogProbs(Matrix hidden,
                     const LinearWeight& head,
                     int64_t vocab_limit,
                     const int32_t* targets,
                     const float* temperatures,
                     const RowStats* stats,
                     const float* grad_log_probs,
                     const float* grad_entropy,
                     Matrix dhidden,
                     float* dhead) override {
    const GuardedDevice::Access access(device_);
    inner_->TokenLogProbs(hidden, Panels(head, dtype_).weight(), vocab_limit, targets, temperatures,
                          stats, grad_log_probs, grad_entropy, dhidden, dhead);
  }
  void Embed(const int32_t* ids, FloatMatrix dx, float* dtable) override {
    const GuardedDevice::Access access(device_);
    inner_->Embed(ids, dx, dtable);
  }

 private:
  GuardedDevice* const device_;
  const DType dtype_;
  const std::unique_ptr<BackwardOps> inner_;
};

class GuardedShardOps final : public ShardOps {
 public:
  GuardedShardOps(GuardedDevice* device, std::unique_ptr<ShardOps> inner)
      : device_(device), inner_(std::move(inner)) {}

  void Round(const float* values, Bf16* rounded, int64_t count) override {
    const Opened opened(device_);
    inner_->Round(values, rounded, count);
  }
  void Convert(
      const void* from, DType from_dtype, void* to, DType to_dtype, int64_t count) override {
    const Opened opened(device_);
    inner_->Convert(from, from_dtype, to, to_dtype, count);
  }
  void Merge(const MergeBlock& block) override {
    const Opened opened(device_);
    inner_->Merge(block);
  }
  void AddLoraGradients(const LoraGradientBlock& block) override {
    const Opened opened(device_);
    inner_->AddLoraGradients(block);
  }
  absl::StatusOr<std::vector<double>> SumsOfSquares(
      const std::vector<FloatRange>& ranges) override {
    const Opened opened(device_);
    return inner_->SumsOfSquares(ranges);
  }
  absl::StatusOr<int64_t> Step(const AdamWArrays& arrays, const AdamWFactors& factors) override {
    const Opened opened(device_);
    return inner_->Step(arrays, factors);
  }
  absl::StatusOr<std::vector<DigestRun>> Digest(const std::vector<MasterRun>& runs,
                                                DType dtype) override {
    const Opened opened(device_);
    return inner_->Digest(runs, dtype);
  }
  absl::Status ReadSample(const std::byte* from,
                          int64_t bytes,
                          int64_t distance,
                          std::byte* to_host) override {
    const Opened opened(device_);
    return inner_->ReadSample(from, bytes, distance, to_host);
  }

 private:
  // They may read what was copied to the host before.
  struct Opened {
    explicit Opened(GuardedDevice* device) : access(device) {
      TANDEM_CHECK(device->Synchronize().ok(), "copies");
    }
    GuardedDevice::Access access;
  };
  GuardedDevice* const device_;
  const std::unique_ptr<ShardOps> inner_;
};

// Collectives that a GPU's ranks make over device memory have it open, and refuse the host's; those
// over the host's have it closed.
class GuardedCommunicator final : public Communicator {
 public:
  GuardedCommunicator(GuardedDevice* device, std::unique_ptr<Communicator> inner)
      : device_(device), inner_(std::move(inner)) {}

  int rank() const override { return inner_->rank(); }
  int world_size() const override { return inner_->world_size(); }
  absl::Status AllGatherV(const void* mine,
                          const std::vector<int64_t>& bytes_per_rank,
                          void* all) override {
    TANDEM_RETURN_IF_ERROR(CheckPlace("AllGatherV", mine, bytes_per_rank.at(Index(rank()))));
    const int64_t bytes = std::accumulate(bytes_per_rank.begin(), bytes_per_rank.end(), int64_t{0});
    if (all != nullptr) TANDEM_RETURN_IF_ERROR(CheckPlace("AllGatherV", all, bytes));
    const GuardedDevice::Access access(device_);
    return inner_->AllGatherV(mine, bytes_per_rank, all);
  }
  absl::Status ReduceScatterSums(const std::vector<ScatteredSum>& sums,
                                 Accumulate accumulate) override {
    for (const ScatteredSum& sum : sums) {
      const std::vector<int64_t>& counts = sum.counts_per_rank;
      TANDEM_RETURN_IF_ERROR(CheckPlace("ReduceScatterSums", sum.full,
                                        std::accumulate(counts.begin(), counts.end(), int64_t{0})));
      TANDEM_RETURN_IF_ERROR(CheckPlace("ReduceScatterSums", sum.mine, counts.at(Index(rank()))));
    }
    const GuardedDevice::Access access(device_);
    return inner_->ReduceScatterSums(sums, accumulate);
  }
  absl::Status AllReduceSum(double* values, int64_t count) override {
    return inner_->AllReduceSum(values, count);
  }
  absl::Status AllReduceSum(float* values, int64_t count) override {
    return inner_->AllReduceSum(values, count);
  }
  absl::Status Broadcast(void* data, int64_t bytes, int root) override {
    TANDEM_RETURN_IF_ERROR(CheckPlace("Broadcast", data, bytes));
    const GuardedDevice::Access access(device_);
    return inner_->Broadcast(data, bytes, root);
  }
  absl::Status Barrier() override { return inner_->Barrier(); }
  Communicator& host() override { return *inner_; }
  void Abort(const std::string& reason) override { inner_->Abort(reason); }

 private:
  static size_t Index(int rank) { return static_cast<size_t>(rank); }
  // The other ranks must not wait for a call that this one does not make.
  absl::Status CheckPlace(const char* collective, const void* place, int64_t size) {
    if (size == 0 || device_->Owns(place)) return absl::OkStatus();
    const absl::Status refused =
        Internal("{} of the device's ranks got memory of the host; use host()", collective);
    inner_->Abort(std::string(refused.message()));
    return refused;
  }

  GuardedDevice* const device_;
  const std::unique_ptr<Communicator> inner_;
};

// Over the host's backend.
class GuardedBackend final : public Backend {
 public:
  explicit GuardedBackend(std::unique_ptr<Backend> host) : host_(std::move(host)) {}

  Device* device() override { return &device_; }
  absl::StatusOr<std::unique_ptr<ForwardOps>> MakeForwardOps(DType dtype) override {
    TANDEM_ASSIGN_OR_RETURN(auto inner, host_->MakeForwardOps(dtype));
    return std::make_unique<GuardedForwardOps>(&device_, std::move(inner));
  }
  absl::StatusOr<std::unique_ptr<BackwardOps>> MakeBackwardOps(DType dtype) override {
    TANDEM_ASSIGN_OR_RETURN(auto inner, host_->MakeBackwardOps(dtype));
    return std::make_unique<GuardedBackwardOps>(&device_, dtype, std::move(inner));
  }
  // Trainers have no storage.
  absl::StatusOr<std::unique_ptr<StorageOps>> MakeStorageOps(const WeightLayout*,
                                                             std::byte*) override {
    return absl::UnimplementedError("a guarded storage");
  }
  absl::Status CheckModel(const ModelSpec& spec) const override { return host_->CheckModel(spec); }
  absl::Status PrepareModel(const ModelSpec& spec, int64_t vocab_limit, ModelUse use) override {
    return host_->PrepareModel(spec, vocab_limit, use);
  }
  KernelChoices numerics_choices() const override { return host_->numerics_choices(); }
  absl::StatusOr<std::unique_ptr<ShardOps>> MakeShardOps() override {
    TANDEM_ASSIGN_OR_RETURN(auto inner, host_->MakeShardOps());
    return std::make_unique<GuardedShardOps>(&device_, std::move(inner));
  }
  absl::StatusOr<std::unique_ptr<Communicator>> JoinGroup(
      const SharedMemoryGroupOptions& options) override {
    TANDEM_ASSIGN_OR_RETURN(auto inner, host_->JoinGroup(options));
    return std::make_unique<GuardedCommunicator>(&device_, std::move(inner));
  }
  // The host's, whose slots are not on this device.
  absl::StatusOr<WeightTransport*> Transport(const std::string& key) override {
    return host_->Transport(key);
  }

 private:
  GuardedDevice device_;
  const std::unique_ptr<Backend> host_;
};

}  // namespace tandem::testing
