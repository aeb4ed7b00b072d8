#include "tests/gpu/mirrored_ops.h"

#include <map>
#include <utility>

#include "common/base/check.h"

namespace tandem::testing {
namespace {

constexpr int64_t kBf16Bytes = 2;

// The device's copies of one call's arguments. Memory that two arguments share is one copy.
class Mirror {
 public:
  explicit Mirror(CudaContext* context) : context_(context) {}
  ~Mirror() {
    TANDEM_CHECK(context_->Synchronize().ok(), "a mirrored op failed on its device");
    for (const auto& [host, copy] : copies_) (void)context_->api().Free(copy.device);
  }

  std::byte* Up(const void* host, int64_t bytes) {
    if (host == nullptr || bytes <= 0) return nullptr;
    Copy& copy = copies_[host];
    TANDEM_CHECK(copy.device == nullptr || copy.bytes == bytes, "arguments overlap in part");
    if (copy.device == nullptr) {
      auto device = context_->api().Malloc(bytes);
      TANDEM_CHECK(device.ok(), std::string(device.status().message()));
      copy = {*device, bytes};
      context_->Copy(copy.device, host, bytes);
    }
    return copy.device;
  }
  Matrix Up(Matrix matrix) {
    matrix.data = Up(matrix.data, BytesOf(matrix));
    return matrix;
  }
  LinearWeight Up(LinearWeight weight) {
    weight.values = Up(weight.values, weight.rows * weight.cols * kBf16Bytes);
    weight.bias = Up(weight.bias, weight.rows * kBf16Bytes);
    LinearAdapter& adapter = weight.adapter;
    const int64_t rank_bytes = adapter.rank * kBf16Bytes;
    adapter.a = Up(adapter.a, adapter.parts * rank_bytes * weight.cols);
    adapter.b = Up(adapter.b, weight.rows * rank_bytes);
    return weight;
  }
  KvLayer Up(KvLayer kv, const AttentionShape& shape) {
    kv.base = Up(kv.base, BytesOf(kv, shape));
    return kv;
  }
  // What the device wrote, with what lay between the rows.
  void Down(Matrix host) { Down(host.data, BytesOf(host)); }
  void Down(KvLayer host, const AttentionShape& shape) { Down(host.base, BytesOf(host, shape)); }
  void Down(void* host, int64_t bytes) {
    if (host != nullptr && bytes > 0) context_->Read(host, copies_.at(host).device, bytes);
  }

 private:
  struct Copy {
    std::byte* device = nullptr;
    int64_t bytes = 0;
  };
  static int64_t BytesOf(const Matrix& matrix) {
    return matrix.rows == 0 ? 0 : ((matrix.rows - 1) * matrix.stride + matrix.cols) * kBf16Bytes;
  }
  static int64_t BytesOf(const KvLayer& kv, const AttentionShape& shape) {
    return kv.num_blocks * KvBlockBytes(shape, DType::kBFloat16);
  }

  CudaContext* const context_;
  std::map<const void*, Copy> copies_;
};

}  // namespace

MirroredOps::MirroredOps(CudaContext* context, std::unique_ptr<ForwardOps> inner)
    : ForwardOpsDecorator(std::move(inner)), context_(context) {}

void MirroredOps::Embed(const int32_t* ids, const LinearWeight& table, Matrix out) {
  Mirror mirror(context_);
  ForwardOpsDecorator::Embed(ids, mirror.Up(table), mirror.Up(out));
  mirror.Down(out);
}

void MirroredOps::TakeRows(Matrix in, const int32_t* rows, Matrix out) {
  Mirror mirror(context_);
  ForwardOpsDecorator::TakeRows(mirror.Up(in), rows, mirror.Up(out));
  mirror.Down(out);
}

void MirroredOps::RmsNorm(Matrix in, const void* weight, float eps, Matrix out) {
  Mirror mirror(context_);
  ForwardOpsDecorator::RmsNorm(mirror.Up(in), mirror.Up(weight, in.cols * kBf16Bytes), eps,
                               mirror.Up(out));
  mirror.Down(out);
}

void MirroredOps::AddRmsNorm(Matrix x, Matrix delta, const void* weight, float eps, Matrix out) {
  Mirror mirror(context_);
  inner().AddRmsNorm(mirror.Up(x), mirror.Up(delta), mirror.Up(weight, x.cols * kBf16Bytes), eps,
                     mirror.Up(out));
  mirror.Down(x);
  mirror.Down(out);
}

void MirroredOps::Linear(Matrix in, const LinearWeight& weight, Matrix out) {
  Mirror mirror(context_);
  ForwardOpsDecorator::Linear(mirror.Up(in), mirror.Up(weight), mirror.Up(out));
  mirror.Down(out);
}

void MirroredOps::Add(Matrix x, Matrix delta) {
  Mirror mirror(context_);
  ForwardOpsDecorator::Add(mirror.Up(x), mirror.Up(delta));
  mirror.Down(x);
}

void MirroredOps::RopeAndStore(Matrix qkv,
                               const AttentionShape& shape,
                               const RopeTable& rope,
                               const std::vector<AttentionSpan>& spans,
                               KvLayer kv) {
  Mirror mirror(context_);
  ForwardOpsDecorator::RopeAndStore(mirror.Up(qkv), shape, rope, spans, mirror.Up(kv, shape));
  mirror.Down(qkv);
  mirror.Down(kv, shape);
}

void MirroredOps::CopyBlocks(const AttentionShape& shape,
                             const std::vector<BlockCopy>& copies,
                             KvLayer kv) {
  Mirror mirror(context_);
  ForwardOpsDecorator::CopyBlocks(shape, copies, mirror.Up(kv, shape));
  mirror.Down(kv, shape);
}

void MirroredOps::Attention(Matrix qkv,
                            const AttentionShape& shape,
                            const std::vector<AttentionSpan>& spans,
                            KvLayer kv,
                            Matrix out) {
  Mirror mirror(context_);
  ForwardOpsDecorator::Attention(mirror.Up(qkv), shape, spans, mirror.Up(kv, shape),
                                 mirror.Up(out));
  mirror.Down(out);
}

void MirroredOps::SiluMul(Matrix gate_up, Matrix out) {
  Mirror mirror(context_);
  ForwardOpsDecorator::SiluMul(mirror.Up(gate_up), mirror.Up(out));
  mirror.Down(out);
}

void MirroredOps::TokenLogProbs(Matrix hidden,
                                const LinearWeight& head,
                                int64_t vocab_limit,
                                const int32_t* targets,
                                const float* temperatures,
                                float* log_probs,
                                RowStats* stats) {
  Mirror mirror(context_);
  ForwardOpsDecorator::TokenLogProbs(mirror.Up(hidden), mirror.Up(head), vocab_limit, targets,
                                     temperatures, log_probs, stats);
}

void MirroredOps::Sample(Matrix hidden,
                         const LinearWeight& head,
                         int64_t vocab_limit,
                         const std::vector<SampleRow>& rows,
                         SampledToken* out) {
  Mirror mirror(context_);
  ForwardOpsDecorator::Sample(mirror.Up(hidden), mirror.Up(head), vocab_limit, rows, out);
}

void MirroredOps::Logits(Matrix hidden, const LinearWeight& head, FloatMatrix out) {
  Mirror mirror(context_);
  const int64_t bytes = ((out.rows - 1) * out.stride + out.cols) * 4;
  FloatMatrix there = out;
  there.data = reinterpret_cast<float*>(mirror.Up(out.data, bytes));
  ForwardOpsDecorator::Logits(mirror.Up(hidden), mirror.Up(head), there);
  mirror.Down(out.data, bytes);
}

}  // namespace tandem::testing
