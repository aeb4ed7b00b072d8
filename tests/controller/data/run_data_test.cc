#include "controller/data/run_data.h"

#include <fstream>

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "common/formats/files.h"
#include "common/text/tokenizer.h"
#include "controller/data/chat_codec.h"
#include "tandem/v1/config.pb.h"
#include "tests/support/temp_dir.h"
#include "tests/support/tiny_model.h"

using namespace tandem;  // NOLINT(google-build-using-namespace)

namespace {

// ChatML with a default system message, as SmolLM2's template has one.
constexpr const char* kTemplate =
    "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}"
    "{{ '<s>system\\nbe good</s>\\n' }}{% endif %}"
    "{{ '<s>' + message['role'] + '\\n' + message['content'] + '</s>' + '\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<s>assistant\\n' }}{% endif %}";

// The tiny model's tokenizer with the template above.
std::unique_ptr<Tokenizer> TinyTokenizer() {
  const testing::TempDir dir;
  REQUIRE(testing::WriteTinyModel(dir.path()).ok());
  TextSettings settings;
  settings.chat_template = kTemplate;
  const std::string json = ReadWholeFile((dir.path() / "tokenizer.json").string()).value();
  return Tokenizer::FromJson(json, "tiny tokenizer", settings).value();
}

struct PromptLoaderFixture {
  testing::TempDir dir;
  std::unique_ptr<Tokenizer> tokenizer = TinyTokenizer();
  v1::Data config = DefaultConfig().data();

  std::unique_ptr<ChatCodec> Codec(bool default_system) const {
    ChatCodecOptions options;
    options.add_default_system_prompt = default_system;
    return ChatCodec::Create(tokenizer.get(), options).value();
  }
  void Write(const std::vector<std::string>& contents) {
    const std::string path = (dir.path() / "train.jsonl").string();
    std::ofstream file(path);
    for (const std::string& content : contents) {
      file << R"({"prompt": [{"role": "user", "content": ")" << content
           << R"("}], "data_source": "s", "reward_model": {"ground_truth": "1"}})"
           << "\n";
    }
    config.clear_train_files();
    config.add_train_files(path);
  }
  absl::StatusOr<LoadedPrompts> Load(int64_t vocab_limit = 1 << 20) const {
    return LoadTrainPrompts(config, *Codec(false), vocab_limit);
  }
};

}  // namespace

TEST_CASE("ChatCodec renders with and without the default system prompt", "[data][codec]") {
  PromptLoaderFixture f;
  const auto messages = nlohmann::ordered_json::parse(R"([{"role": "user", "content": "hi"}])");
  REQUIRE(f.Codec(true)->RenderChat(messages).value() ==
          "<s>system\nbe good</s>\n<s>user\nhi</s>\n<s>assistant\n");
  REQUIRE(f.Codec(false)->RenderChat(messages).value() == "<s>user\nhi</s>\n<s>assistant\n");
  const auto own = nlohmann::ordered_json::parse(
      R"([{"role": "system", "content": "own"}, {"role": "user", "content": "hi"}])");
  REQUIRE(f.Codec(false)->RenderChat(own).value() ==
          "<s>system\nown</s>\n<s>user\nhi</s>\n<s>assistant\n");
}

TEST_CASE("LoadTrainPrompts filters overlong prompts and counts them", "[data][loader]") {
  PromptLoaderFixture f;
  f.Write({"short", std::string(400, 'x'), "brief"});
  f.config.set_max_prompt_length(64);
  const LoadedPrompts loaded = f.Load().value();
  REQUIRE(loaded.prompts.size() == 2);
  REQUIRE(loaded.filtered == 1);
  REQUIRE(loaded.prompts[1].data_row == 1);
  REQUIRE(f.tokenizer->Decode(loaded.prompts[0].tokens, false) ==
          "<s>user\nshort</s>\n<s>assistant\n");
}

TEST_CASE("A row that the reward refuses is told with file and line", "[data][loader]") {
  PromptLoaderFixture f;
  f.Write({"one", "two"});
  int rows = 0;
  const auto refused = LoadTrainPrompts(
      f.config, *f.Codec(false), 1 << 20,
      [&](const std::string& data_source, const std::string& truth) -> absl::Status {
        REQUIRE(data_source == "s");
        REQUIRE(truth == "1");
        return ++rows == 2 ? absl::InvalidArgumentError("nobody scores it") : absl::OkStatus();
      });
  REQUIRE(absl::IsInvalidArgument(refused.status()));
  REQUIRE(std::string(refused.status().message()) ==
          f.config.train_files(0) + ":2: nobody scores it");
}

TEST_CASE("LoadTrainPrompts truncates at the side that is named", "[data][loader]") {
  PromptLoaderFixture f;
  f.Write({"0123456789"});
  f.config.set_filter_overlong_prompts(false);
  f.config.set_max_prompt_length(10);
  using Tokens = std::vector<int32_t>;
  const Tokens all = f.tokenizer->Encode("<s>user\n0123456789</s>\n<s>assistant\n", false).value();
  REQUIRE(all.size() > 10);
  const auto kept = [&f](const char* side) {
    f.config.set_truncation(side);
    const LoadedPrompts loaded = f.Load().value();
    REQUIRE(loaded.truncated == 1);
    return loaded.prompts[0].tokens;
  };
  Tokens middle(all.begin(), all.begin() + 5);
  middle.insert(middle.end(), all.end() - 5, all.end());
  REQUIRE(kept("right") == Tokens(all.begin(), all.begin() + 10));
  REQUIRE(kept("left") == Tokens(all.end() - 10, all.end()));
  REQUIRE(kept("middle") == middle);
}

TEST_CASE("LoadTrainPrompts refuses overlong and foreign prompts by line", "[data][loader]") {
  PromptLoaderFixture f;
  f.Write({"short", std::string(400, 'x')});
  f.config.set_filter_overlong_prompts(false);
  f.config.set_max_prompt_length(64);
  const std::string overlong(f.Load().status().message());
  REQUIRE(overlong.find("train.jsonl:2") != std::string::npos);
  REQUIRE(overlong.find("data.max_prompt_length") != std::string::npos);
  f.config.set_max_prompt_length(1000);
  REQUIRE(std::string(f.Load(20).status().message()).find("token id") != std::string::npos);
  f.config.set_filter_overlong_prompts(true);
  f.config.set_max_prompt_length(1);
  REQUIRE(std::string(f.Load().status().message()).find("no training prompt") != std::string::npos);
}
