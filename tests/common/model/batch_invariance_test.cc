// The contract of docs/reference/numerics.md for the whole decoder: hidden state and log-prob of a
// token depend neither on how many rows a pass has, on who they are, on chunks, blocks nor threads.
#include <algorithm>
#include <functional>
#include <numeric>
#include <random>

#include <catch2/catch.hpp>
#include <fmt/format.h>

#include "common/memory/activation_bytes.h"
#include "common/model/decoder.h"
#include "common/process/threads.h"
#include "parity/op_watch.h"
#include "tests/common/ops/ops_fixture.h"
#include "tests/support/tiny_weights.h"

namespace tandem::testing {
namespace {

constexpr int64_t kVocabulary = 1100, kTextLimit = 1090;  // two chunks of the head
constexpr int64_t kMostRows = 1024;
// Within a KV block, up to its edge, beyond it; more than kMostRows together.
constexpr int64_t kTextLengths[] = {1,  2,  5,  17,  33,  63,  64,  65,  66, 70,
                                    80, 96, 99, 127, 128, 129, 130, 150, 193};

struct Text {
  std::vector<int32_t> tokens;
  // Of every position: the bits of the state that goes into the head, and the log-prob of a token.
  std::vector<std::string> hidden;
  std::vector<float> log_probs;
};

int32_t TargetAt(const Text& text, int64_t position) {
  return static_cast<int32_t>((text.tokens[static_cast<size_t>(position)] * 31 + position) %
                              kTextLimit);
}

std::vector<Text> MakeTexts() {
  std::mt19937 random(3);
  std::vector<Text> texts;
  for (const int64_t length : kTextLengths) {
    Text& text = texts.emplace_back();
    for (int64_t i = 0; i < length; ++i) {
      text.tokens.push_back(static_cast<int32_t>(random() % kVocabulary));
    }
  }
  return texts;
}

// Rows of one pass: positions [first, first + rows) of a text.
struct Piece {
  size_t text = 0;
  int64_t first = 0, rows = 0;
};

// A decoder with KV blocks for texts, which lie in places that `seed` chooses.
class Runner {
 public:
  Runner(const TinyWeights& weights,
         std::unique_ptr<ForwardOps> ops,
         const std::vector<Text>* texts,
         uint32_t seed)
      : weights_(weights),
        ops_(std::move(ops)),
        decoder_(Decoder::Create(weights.spec, ops_.get(), 256).value()),
        texts_(*texts) {
    const AttentionShape shape = AttentionShapeOf(weights.spec);
    for (int layer = 0; layer < weights.spec.num_layers; ++layer) {
      kv_.emplace_back(shape, kBf16, kBlocks, seed);
      layers_.push_back(kv_.back().view());
    }
    // Every layer has the same free places.
    for (const Text& text : texts_) blocks_.push_back(kv_.front().Take(std::ssize(text.tokens)));
  }

  // Runs one pass; the text "text, position" of the first row that is not as in `texts`, or
  // nothing. Fills `texts` instead where they have no results yet.
  std::string Run(const std::vector<Piece>& pieces, std::vector<Text>* fill = nullptr) {
    TokenBatch batch;
    batch.rope = &decoder_.rope();
    std::vector<int32_t> ids, targets;
    for (const Piece& piece : pieces) {
      const Text& text = texts_[piece.text];
      batch.spans.push_back({.first_row = std::ssize(ids),
                             .rows = piece.rows,
                             .first_position = piece.first,
                             .blocks = blocks_[piece.text].data()});
      for (int64_t i = piece.first; i < piece.first + piece.rows; ++i) {
        ids.push_back(text.tokens[static_cast<size_t>(i)]);
        targets.push_back(TargetAt(text, i));
      }
    }
    const auto rows = std::ssize(ids);
    const TestMatrix hidden = Hidden(ids, batch);
    const std::vector<float> ones(ids.size(), 1.0f);
    std::vector<float> log_probs(ids.size());
    const GlobalWeights globals = Globals();
    ops_->TokenLogProbs(hidden.view(), globals.head, kTextLimit, targets.data(), ones.data(),
                        log_probs.data(), nullptr);
    int64_t row = 0;
    for (const Piece& piece : pieces) {
      for (int64_t i = piece.first; i < piece.first + piece.rows; ++i, ++row) {
        const std::string bits(static_cast<const char*>(hidden.Rows(row, 1).data),
                               static_cast<size_t>(hidden.cols() * 2));
        const auto at = static_cast<size_t>(i);
        const float log_prob = log_probs[static_cast<size_t>(row)];
        if (fill != nullptr) {
          (*fill)[piece.text].hidden.push_back(bits);
          (*fill)[piece.text].log_probs.push_back(log_prob);
        } else if (texts_[piece.text].hidden[at] != bits ||
                   texts_[piece.text].log_probs[at] != log_prob) {
          return fmt::format("text {}, position {}, row {} of {}", piece.text, i, row, rows);
        }
      }
    }
    return "";
  }

 private:
  static constexpr int64_t kBlocks = 64;

  GlobalWeights Globals() const {
    return ViewGlobals(weights_.spec, decoder_.layout(), weights_.region->data());
  }

  // The normed residuals [rows, hidden size].
  TestMatrix Hidden(const std::vector<int32_t>& ids, const TokenBatch& batch) {
    const auto rows = std::ssize(ids);
    const ModelSpec& spec = weights_.spec;
    AlignedBytes activations(static_cast<size_t>(LayerActivationBytes(spec, 2, rows)));
    LayerActivations buffers = PlaceLayerActivations(spec, kBf16, rows, activations.data());
    const TestMatrix a(kBf16, rows, spec.hidden_size), b(kBf16, rows, spec.hidden_size);
    const Matrix residual = decoder_.Forward(weights_.region->data(), ids.data(), batch, layers_,
                                             buffers, a.view(), b.view());
    std::vector<int32_t> all(ids.size());
    std::iota(all.begin(), all.end(), 0);
    TestMatrix normed(kBf16, rows, spec.hidden_size);
    decoder_.FinalNorm(Globals().final_norm, residual, all, normed.view());
    return normed;
  }

  const TinyWeights& weights_;
  std::unique_ptr<ForwardOps> ops_;
  Decoder decoder_;
  const std::vector<Text>& texts_;
  std::vector<TestKv> kv_;
  std::vector<KvLayer> layers_;
  std::vector<std::vector<int32_t>> blocks_;
};

// Fills in what every text gives when it is alone in its pass, whole.
void RunAlone(const TinyWeights& weights, std::vector<Text>& texts) {
  Runner runner(weights, MakeForward(kBf16), &texts, 1);
  for (size_t t = 0; t < texts.size(); ++t) {
    REQUIRE(runner.Run({{t, 0, std::ssize(texts[t].tokens)}}, &texts) == "");
  }
}

// `rows` rows, or what is left: random chunks of texts that were drawn at random. Advances `done`.
std::vector<Piece> DrawBatch(const std::vector<Text>& texts,
                             int64_t rows,
                             std::vector<int64_t>& done,
                             std::mt19937& random) {
  std::vector<size_t> order(texts.size());
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), random);
  std::vector<Piece> pieces;
  // A second round where the chunks were too short to make `rows`; a text is in a pass once.
  for (const size_t t : order) {
    const int64_t left = std::min(std::ssize(texts[t].tokens) - done[t], rows);
    if (left == 0) continue;
    pieces.push_back({t, done[t], 1 + static_cast<int64_t>(random()) % left});
    rows -= pieces.back().rows;
  }
  for (Piece& piece : pieces) {
    const int64_t length = std::ssize(texts[piece.text].tokens);
    const int64_t more = std::min(rows, length - piece.first - piece.rows);
    piece.rows += more;
    rows -= more;
    done[piece.text] = piece.first + piece.rows;
  }
  return pieces;
}

using MakeOps = std::function<std::unique_ptr<ForwardOps>(int threads)>;

// Passes of every size over random pieces; what differs first, or nothing.
std::string SweepBatches(const TinyWeights& weights,
                         const std::vector<Text>& texts,
                         const std::vector<int64_t>& sizes,
                         const MakeOps& make) {
  std::mt19937 random(7);
  constexpr int kPasses = 12;  // of a size, at most: enough to get beyond a KV block
  for (const int threads : {1, 2}) {
    for (const int64_t size : sizes) {
      Runner runner(weights, make(threads), &texts, static_cast<uint32_t>(random()));
      std::vector<int64_t> done(texts.size(), 0);
      for (int pass = 0; pass < kPasses; ++pass) {
        const std::vector<Piece> pieces = DrawBatch(texts, size, done, random);
        if (pieces.empty()) break;
        const std::string difference = runner.Run(pieces);
        if (!difference.empty()) {
          return fmt::format("{} with {} threads: {}", size, threads, difference);
        }
      }
    }
  }
  return "";
}

const std::vector<int64_t> kSizes = {1,  2,  3,  15,  16,  17,  31,       33,
                                     63, 64, 65, 127, 256, 511, kMostRows};

const std::vector<int64_t> kFewSizes = {2, 17, 127, kMostRows};

TinyModelOptions ModelOf(const std::string& type) {
  return {.model_type = type, .vocab_size = kVocabulary};
}

std::unique_ptr<ForwardOps> Make(int threads) { return MakeForward(kBf16, threads); }

// What a kernel would do whose tiles show in its bits: off by one unit where a pass has many rows.
class TilingOps final : public ForwardOpsDecorator {
 public:
  explicit TilingOps(int threads) : ForwardOpsDecorator(MakeForward(kBf16, threads)) {}
  void Linear(Matrix in, const LinearWeight& weight, Matrix out) override {
    ForwardOpsDecorator::Linear(in, weight, out);
    if (out.rows > 500) static_cast<uint16_t*>(out.data)[17 * out.stride] ^= 1u;
  }
};

}  // namespace

TEST_CASE("a token's state and log-prob do not depend on its pass, in any model and kernel set",
          "[model][sweep]") {
  for (const std::string type : {"llama", "qwen2", "qwen3"}) {
    const TinyWeights weights(ModelOf(type), kBf16);
    for (const std::string& isa : RunnableIsas()) {
      const ForcedIsa forced(isa);
      INFO(type << " with " << isa);
      std::vector<Text> texts = MakeTexts();
      RunAlone(weights, texts);
      REQUIRE(SweepBatches(weights, texts, type == "llama" ? kSizes : kFewSizes, Make) == "");
    }
  }
}

TEST_CASE("a prompt gives the same states in chunks of every size", "[model][sweep]") {
  const TinyWeights weights(ModelOf("llama"), kBf16);
  for (const std::string& isa : RunnableIsas()) {
    const ForcedIsa forced(isa);
    std::vector<Text> texts = MakeTexts();
    texts.erase(texts.begin(), std::find_if(texts.begin(), texts.end(), [](const Text& text) {
                  return text.tokens.size() == 80;
                }));
    texts.resize(1);
    RunAlone(weights, texts);
    for (int64_t chunk = 1; chunk <= 80; ++chunk) {
      INFO(isa << ", chunks of " << chunk);
      Runner runner(weights, Make(1 + static_cast<int>(chunk % 2)), &texts,
                    static_cast<uint32_t>(chunk));
      for (int64_t first = 0; first < 80; first += chunk) {
        REQUIRE(runner.Run({{0, first, std::min(chunk, 80 - first)}}) == "");
      }
    }
  }
}

TEST_CASE("the sweep finds a row that a large pass computes otherwise", "[model][sweep]") {
  const TinyWeights weights(ModelOf("llama"), kBf16);
  std::vector<Text> texts = MakeTexts();
  RunAlone(weights, texts);
  const MakeOps tiling = [](int threads) { return std::make_unique<TilingOps>(threads); };
  REQUIRE(SweepBatches(weights, texts, {1, 256}, tiling) == "");
  REQUIRE(SweepBatches(weights, texts, {511}, tiling) != "");
}

}  // namespace tandem::testing
