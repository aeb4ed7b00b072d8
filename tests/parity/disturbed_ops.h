// Forward ops with a fault of one unit in the last place, for tests only.
#pragma once

#include <bit>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "parity/op_watch.h"

namespace tandem::testing {

// Which call is disturbed: the `nth` of its kind in every forward pass.
struct Fault {
  ForwardOp op = ForwardOp::kLinear;
  int nth = 0;
  int64_t element = 0;  // of every row
};

// Flips the last bit of one element of every row that the op puts out.
class DisturbedOps final : public ForwardOpsDecorator {
 public:
  DisturbedOps(std::unique_ptr<ForwardOps> inner, const Fault& fault)
      : ForwardOpsDecorator(std::move(inner)), fault_(fault) {}

  void Embed(const int32_t* ids, const LinearWeight& table, Matrix out) override {
    calls_ = attentions_ = 0;
    ForwardOpsDecorator::Embed(ids, table, out);
    Disturb(ForwardOp::kEmbed, out);
  }
  void RmsNorm(Matrix in, const void* weight, float eps, Matrix out) override {
    ForwardOpsDecorator::RmsNorm(in, weight, eps, out);
    Disturb(ForwardOp::kRmsNorm, out);
  }
  void Linear(Matrix in, const LinearWeight& weight, Matrix out) override {
    ForwardOpsDecorator::Linear(in, weight, out);
    Disturb(ForwardOp::kLinear, out);
  }
  void Add(Matrix x, Matrix delta) override {
    ForwardOpsDecorator::Add(x, delta);
    Disturb(ForwardOp::kAdd, x);
  }
  void RopeAndStore(Matrix qkv,
                    const AttentionShape& shape,
                    const RopeTable& rope,
                    const std::vector<AttentionSpan>& spans,
                    KvLayer kv) override {
    ForwardOpsDecorator::RopeAndStore(qkv, shape, rope, spans, kv);
    // A layer may call it for some spans first.
    if (fault_.op != ForwardOp::kRopeAndStore || attentions_ != fault_.nth) return;
    for (const AttentionSpan& span : spans) DisturbRows(qkv, span.first_row, span.rows);
  }
  void Attention(Matrix qkv,
                 const AttentionShape& shape,
                 const std::vector<AttentionSpan>& spans,
                 KvLayer kv,
                 Matrix out) override {
    ForwardOpsDecorator::Attention(qkv, shape, spans, kv, out);
    ++attentions_;
    Disturb(ForwardOp::kAttention, out);
  }
  void SiluMul(Matrix gate_up, Matrix out) override {
    ForwardOpsDecorator::SiluMul(gate_up, out);
    Disturb(ForwardOp::kSiluMul, out);
  }
  void TokenLogProbs(Matrix hidden,
                     const LinearWeight& head,
                     int64_t vocab_limit,
                     const int32_t* targets,
                     const float* temperatures,
                     float* log_probs,
                     RowStats* stats) override {
    ForwardOpsDecorator::TokenLogProbs(hidden, head, vocab_limit, targets, temperatures, log_probs,
                                       stats);
    if (fault_.op != ForwardOp::kTokenLogProbs) return;
    for (int64_t i = 0; i < hidden.rows; ++i) {
      log_probs[i] = std::bit_cast<float>(std::bit_cast<uint32_t>(log_probs[i]) ^ 1u);
    }
  }

 private:
  void Disturb(ForwardOp op, const Matrix& out) {
    if (fault_.op == op && calls_++ == fault_.nth) DisturbRows(out, 0, out.rows);
  }
  void DisturbRows(const Matrix& out, int64_t first, int64_t rows) {
    auto* values = static_cast<uint16_t*>(out.data) + first * out.stride + fault_.element;
    for (int64_t row = 0; row < rows; ++row) values[row * out.stride] ^= 1u;
  }

  const Fault fault_;
  int calls_ = 0;       // of the fault's op in this pass
  int attentions_ = 0;  // of this pass
};

// Flips the last bit of every log-prob, and makes the very first one NaN.
class NanOps final : public ForwardOpsDecorator {
 public:
  using ForwardOpsDecorator::ForwardOpsDecorator;
  void TokenLogProbs(Matrix hidden,
                     const LinearWeight& head,
                     int64_t vocab_limit,
                     const int32_t* targets,
                     const float* temperatures,
                     float* log_probs,
                     RowStats* stats) override {
    ForwardOpsDecorator::TokenLogProbs(hidden, head, vocab_limit, targets, temperatures, log_probs,
                                       stats);
    for (int64_t i = 0; i < hidden.rows; ++i) {
      log_probs[i] = std::bit_cast<float>(std::bit_cast<uint32_t>(log_probs[i]) ^ 1u);
    }
    if (!std::exchange(called_, true)) log_probs[0] = std::numeric_limits<float>::quiet_NaN();
  }

 private:
  bool called_ = false;
};

// Says that it ran nothing of one op.
class SilentOps final : public ForwardOpsDecorator {
 public:
  SilentOps(std::unique_ptr<ForwardOps> inner, ForwardOp op)
      : ForwardOpsDecorator(std::move(inner)), op_(op) {}
  const OpCounts& counts() const override {
    counts_ = ForwardOpsDecorator::counts();
    counts_.of[static_cast<size_t>(op_)] = {};
    return counts_;
  }

 private:
  const ForwardOp op_;
  mutable OpCounts counts_;
};

}  // namespace tandem::testing
