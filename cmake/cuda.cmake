# The CUDA device, built in one of two ways or not at all.
#
#   SHARDMARK_CUDA        nvcc and the toolkit's libraries
#   SHARDMARK_CUDA_HOST   the same sources by the host's C++ compiler against reference/cuda_host, whose
#                         headers have the toolkit's names: for tests, never a GPU, never a speed
#
# Either gives cuda_found, which rooms with `.cu` or `*_cuda.c` link, and SHARDMARK_HAS_CUDA.
option(SHARDMARK_CUDA "build the CUDA device (needs a CUDA toolkit and NCCL)" OFF)
option(SHARDMARK_CUDA_HOST "build the CUDA device for tests on the CPU" OFF)
set(SHARDMARK_HAS_CUDA OFF)

if(SHARDMARK_CUDA AND SHARDMARK_CUDA_HOST)
  message(FATAL_ERROR "SHARDMARK_CUDA and SHARDMARK_CUDA_HOST exclude each other: one build, one CUDA")
endif()

if(SHARDMARK_CUDA)
  if(SHARDMARK_SANITIZE)
    message(FATAL_ERROR "SHARDMARK_SANITIZE with SHARDMARK_CUDA: the sanitized build of the device is SHARDMARK_CUDA_HOST")
  endif()
  if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
    set(CMAKE_CUDA_ARCHITECTURES "80;90;100" CACHE STRING "compute capabilities to build for")
  endif()
  include(CheckLanguage)
  check_language(CUDA)
  if(NOT CMAKE_CUDA_COMPILER)
    message(FATAL_ERROR "SHARDMARK_CUDA: no nvcc in PATH or in CMAKE_CUDA_COMPILER; without a toolkit: -DSHARDMARK_CUDA_HOST=ON")
  endif()
  enable_language(CXX)
  enable_language(CUDA)
  find_package(CUDAToolkit 12.8 QUIET) # the first that knows compute capability 10.0
  if(NOT TARGET CUDA::cudart_static OR NOT TARGET CUDA::cublasLt)
    message(FATAL_ERROR "SHARDMARK_CUDA: CUDA toolkit 12.8 or later with cudart and cublasLt is needed; found: ${CUDAToolkit_VERSION}")
  endif()
  find_path(NCCL_INCLUDE nccl.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
  if(NOT NCCL_INCLUDE)
    message(FATAL_ERROR "SHARDMARK_CUDA: nccl.h is missing (libnccl-dev); set NCCL_INCLUDE if it is elsewhere")
  endif()
  message(STATUS "CUDA ${CUDAToolkit_VERSION} for ${CMAKE_CUDA_ARCHITECTURES}; nccl.h: ${NCCL_INCLUDE}; its library is found at run time")
  add_library(cuda_found INTERFACE)
  target_include_directories(cuda_found SYSTEM INTERFACE ${CUDAToolkit_INCLUDE_DIRS} ${NCCL_INCLUDE})
  target_link_libraries(cuda_found INTERFACE CUDA::cudart_static CUDA::cublasLt ${CMAKE_DL_LIBS})
  set(CMAKE_CUDA_STANDARD 17)
  set(CMAKE_CUDA_FLAGS_RELEASE "-O3 -lineinfo")
  set(CMAKE_CUDA_FLAGS_DEBUG "-O1 -g -lineinfo")
  add_compile_options("$<$<COMPILE_LANGUAGE:CUDA>:SHELL:-Werror all-warnings -Xcompiler=-Wall,-Wextra,-Werror,-ffp-contract=off>")
endif()

if(SHARDMARK_CUDA_HOST)
  if(NOT SHARDMARK_MPI)
    message(FATAL_ERROR "SHARDMARK_CUDA_HOST without SHARDMARK_MPI: its NCCL goes by MPI")
  endif()
  if(NOT EXISTS ${CMAKE_SOURCE_DIR}/reference/cuda_host/include/cuda_runtime.h)
    message(FATAL_ERROR "SHARDMARK_CUDA_HOST: reference/cuda_host/include has no cuda_runtime.h to build against")
  endif()
  if(SHARDMARK_SANITIZE STREQUAL "thread")
    message(FATAL_ERROR "SHARDMARK_SANITIZE=thread with SHARDMARK_CUDA_HOST: its fibres share one thread; use address")
  endif()
  enable_language(CXX)
  file(GLOB stand_in CONFIGURE_DEPENDS reference/cuda_host/*.c reference/cuda_host/*.cpp)
  list(FILTER stand_in EXCLUDE REGEX "_test\\.")
  add_library(sm_cuda_host STATIC ${stand_in})
  target_compile_options(sm_cuda_host PRIVATE -O3) # it carries every kernel's threads
  target_include_directories(sm_cuda_host BEFORE PUBLIC ${CMAKE_SOURCE_DIR}/reference/cuda_host/include)
  target_link_libraries(sm_cuda_host PUBLIC MPI::MPI_C Threads::Threads ${CMAKE_DL_LIBS} m)
  target_link_options(sm_cuda_host PUBLIC -rdynamic) # its NVML is looked up by name
  add_library(cuda_found INTERFACE)
  target_link_libraries(cuda_found INTERFACE sm_cuda_host)
  add_compile_definitions(SHARDMARK_CUDA_HOST=1)
endif()

if(SHARDMARK_CUDA OR SHARDMARK_CUDA_HOST)
  set(SHARDMARK_HAS_CUDA ON)
  set(CMAKE_CXX_STANDARD 17)
  set(CMAKE_CXX_FLAGS_RELEASE "-O3 -g")
  set(CMAKE_CXX_FLAGS_DEBUG "-O2 -g") # kernels on the CPU: their tests take two thirds of the time that -O1 gives
  add_compile_definitions(SHARDMARK_HAS_CUDA=1)
endif()

# The host's C++ compiler takes a `.cu` file only when told what it is.
function(cuda_as_cxx)
  if(SHARDMARK_CUDA_HOST AND ARGN)
    set_source_files_properties(${ARGN} PROPERTIES LANGUAGE CXX COMPILE_OPTIONS "-xc++;-Wno-unknown-pragmas")
  endif()
endfunction()
