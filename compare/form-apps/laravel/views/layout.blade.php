<!DOCTYPE html>
<html lang="{{ str_replace('_', '-', app()->getLocale()) }}">
    <head>
        <meta charset="utf-8">
        <meta name="viewport" content="width=device-width, initial-scale=1">
        <meta name="csrf-token" content="{{ csrf_token() }}">
        <title>Shop</title>
    </head>
    <body>
        @if (session('name'))<b id="name">{{ session('name') }}</b>@endif
        @if (session('notice'))<p id="notice">{{ session('notice') }}</p>@endif
        @if ($errors->any())<p id="errors">{{ $errors->first() }}</p>@endif
        @yield('content')
    </body>
</html>
