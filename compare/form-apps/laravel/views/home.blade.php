@extends('layout')
@section('content')<h1>Shop</h1>@endsection
