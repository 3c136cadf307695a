# What `cmake --install` puts into a folder that can be moved to another machine: bin/tutti, and in lib/ the plug-ins and
# the libraries that a plain Debian or Ubuntu machine with CUDA lacks. ./dev package makes an archive of it.
add_custom_target(programs DEPENDS tutti) # what is installed, without the tests
foreach(plugin tutti_cuda tutti_mpi tutti_nccl)
  if(TARGET ${plugin})
    add_dependencies(programs ${plugin})
  endif()
endforeach()

# The old kind of RPATH holds for libraries that libraries need, too: oneDNN's own is empty and it needs OpenCL.
set_target_properties(tutti PROPERTIES INSTALL_RPATH "$ORIGIN/../lib" BUILD_WITH_INSTALL_RPATH ON)
target_link_options(tutti PRIVATE -Wl,--disable-new-dtags)

# Not taken along: what every machine has, in a version as new as the one here, and what belongs to CUDA.
install(TARGETS tutti RUNTIME_DEPENDENCIES
        PRE_EXCLUDE_REGEXES "^ld-linux" "^lib(c|m|dl|rt|pthread|stdc\\+\\+|gcc_s)\\.so"
        RUNTIME DESTINATION bin LIBRARY DESTINATION lib)
install(FILES LICENSE DESTINATION .)
configure_file(cmake/package.txt.in ${CMAKE_BINARY_DIR}/package.txt @ONLY)
install(FILES ${CMAKE_BINARY_DIR}/package.txt DESTINATION . RENAME README.txt)

# install_licence(NAME FILES...): the first of the files that is there.
function(install_licence name)
  foreach(file ${ARGN})
    if(EXISTS ${file})
      file(REAL_PATH ${file} file)
      install(FILES ${file} DESTINATION licences RENAME ${name}.txt)
      return()
    endif()
  endforeach()
  message(STATUS "the licence of ${name} is not on this machine: an installed folder will lack it")
endfunction()
set(documents /usr/share/doc)
install_licence(oneDNN ${documents}/libdnnl-dev/copyright)
install_licence(hwloc ${documents}/libhwloc-dev/copyright)
install_licence(libudev ${documents}/libudev1/copyright)
install_licence(OpenCL-loader ${documents}/ocl-icd-libopencl1/copyright)
install_licence(libgomp ${documents}/libgomp1/copyright)
install_licence(fmt ${documents}/libfmt-dev/copyright)
install_licence(CLI11 ${documents}/libcli11-dev/copyright)
install_licence(nlohmann-json ${documents}/nlohmann-json3-dev/copyright)
install_licence(tomlplusplus ${documents}/libtomlplusplus-dev/copyright)
install_licence(CBC ${documents}/coinor-libcbc-dev/copyright)
install_licence(xxHash ${documents}/libxxhash-dev/copyright)
install_licence(PCRE2 ${documents}/libpcre2-dev/copyright)
install_licence(utf8proc ${documents}/libutf8proc-dev/copyright)
install_licence(SentencePiece ${documents}/libsentencepiece-dev/copyright)

# install_plugin(NAME): without those places in its RPATH that are of this machine alone.
function(install_plugin name)
  install(TARGETS ${name} LIBRARY DESTINATION lib)
  get_target_property(places ${name} TUTTI_INSTALLED_RPATH)
  list(JOIN places : places)
  string(REPLACE $ \\$ places "${places}")
  install(CODE "file(RPATH_SET FILE \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/lib/lib${name}.so\" NEW_RPATH \"${places}\")")
endfunction()
if(TARGET tutti_mpi) # MPI itself belongs to the machine, as does mpirun
  install_plugin(tutti_mpi)
endif()
install_plugin(tutti_nccl) # NCCL itself belongs to the machine
if(TARGET tutti_cuda)
  install_plugin(tutti_cuda)
  # Of cuDNN the two libraries that attention uses; the plug-in looks for them beside itself.
  find_package(CUDAToolkit REQUIRED)
  foreach(name cudnn_graph cudnn_engines_runtime_compiled)
    find_file(${name}_FILE lib${name}.so.9 HINTS ${CUDAToolkit_LIBRARY_DIR} PATHS /usr/lib/x86_64-linux-gnu)
    if(${name}_FILE)
      file(REAL_PATH ${${name}_FILE} file)
      install(PROGRAMS ${file} DESTINATION lib RENAME lib${name}.so.9)
    else()
      message(STATUS "lib${name}.so.9 is not on this machine: an installed folder will lack it")
    endif()
  endforeach()
  get_filename_component(toolkit ${CUDAToolkit_LIBRARY_DIR} REALPATH)
  get_filename_component(toolkit ${toolkit} DIRECTORY)
  file(GLOB cudnn_licences ${toolkit}/dist-info/nvidia_cudnn*/licenses/License.txt ${documents}/libcudnn9*/copyright)
  file(GLOB cuda_licences ${toolkit}/EULA.txt ${toolkit}/dist-info/nvidia_cuda_runtime*/licenses/License.txt)
  install_licence(cuDNN ${cudnn_licences} ${PROJECT_SOURCE_DIR}/cmake/nvidia.txt)
  install_licence(CUDA-runtime ${cuda_licences} ${PROJECT_SOURCE_DIR}/cmake/nvidia.txt)
endif()
