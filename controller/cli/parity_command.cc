#include "controller/cli/parity_command.h"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <vector>

#include <unistd.h>

#include "common/base/status_macros.h"

namespace tandem {

absl::Status ParityCommand(const ParityCommandOptions& options) {
  std::error_code error;
  const auto self = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error) return Internal("cannot find this program's folder: {}", error.message());
  const std::string program = self.parent_path() / "tandem-parity";
  std::vector<std::string> arguments = {program,
                                        "--model",
                                        options.model_dir,
                                        "--tokens",
                                        std::to_string(options.tokens),
                                        "--response-length",
                                        std::to_string(options.response_length),
                                        "--max-num-seqs",
                                        std::to_string(options.max_num_seqs),
                                        "--seed",
                                        std::to_string(options.seed)};
  if (options.threads > 0) {
    arguments.insert(arguments.end(), {"--threads", std::to_string(options.threads)});
  }
  if (options.json) arguments.push_back("--json");
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  execv(program.c_str(), argv.data());
  return MakeStatus(
      absl::StatusCode::kNotFound,
      "cannot start {}: {}; it lies beside tandemctl where ./deploy/build.sh put both", program,
      std::strerror(errno));
}

}  // namespace tandem
