# Which GPUs the CUDA backend is compiled for: sets CMAKE_CUDA_ARCHITECTURES, and TUTTI_CUDA_BUILT_FOR in words.
set(TUTTI_CUDA_ARCHITECTURES here CACHE STRING
    "GPUs that the CUDA backend is built for: here, all, or a list as CMAKE_CUDA_ARCHITECTURES has it, as in 80-real\\;89-real")

# here: those of this machine; Hopper where it has none. Only 90a has Hopper's own instructions for products.
function(tutti_architectures_here result)
  find_program(NVIDIA_SMI nvidia-smi)
  set(found "")
  if(NVIDIA_SMI)
    execute_process(COMMAND ${NVIDIA_SMI} --query-gpu=compute_cap --format=csv,noheader OUTPUT_VARIABLE text ERROR_QUIET)
    string(REGEX MATCHALL "[0-9]+\\.[0-9]" capabilities "${text}")
    foreach(capability ${capabilities})
      string(REPLACE . "" capability ${capability})
      list(APPEND found ${capability}-real)
    endforeach()
    list(REMOVE_DUPLICATES found)
    list(TRANSFORM found REPLACE "^90-real$" 90a-real)
  endif()
  if(NOT found)
    set(found 90a-real)
  endif()
  set(${result} ${found} PARENT_SCOPE)
endfunction()

if(TUTTI_CUDA_ARCHITECTURES STREQUAL here)
  tutti_architectures_here(CMAKE_CUDA_ARCHITECTURES)
elseif(TUTTI_CUDA_ARCHITECTURES STREQUAL all)
  # Machine code for every GPU since Ampere. PTX for what comes: a driver compiles that of compute_120 for what is newer
  # than Blackwell, and that of compute_100 for what lies between.
  set(CMAKE_CUDA_ARCHITECTURES 80-real 86-real 89-real 90a-real 100 120)
else()
  set(CMAKE_CUDA_ARCHITECTURES ${TUTTI_CUDA_ARCHITECTURES})
endif()

set(words ${CMAKE_CUDA_ARCHITECTURES})
list(TRANSFORM words REPLACE "^([0-9]+)([0-9])a?-real$" "\\1.\\2")
list(TRANSFORM words REPLACE "^([0-9]+)([0-9])a?(-virtual)?$" "\\1.\\2 and newer")
list(JOIN words ", " TUTTI_CUDA_BUILT_FOR)
message(STATUS "CUDA kernels for compute capability ${TUTTI_CUDA_BUILT_FOR}")
